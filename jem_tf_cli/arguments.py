"""Adding commands to the parser, and the arguments that several commands share."""

import argparse
import textwrap
from typing import Any

from jem_tf_cli.examples import EXAMPLES


class Commands:
    """Adds commands to a parser."""

    def __init__(self, parser: argparse.ArgumentParser):
        self._subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(self, name: str, about: str, run: str) -> argparse.ArgumentParser:
        parser = self._subparsers.add_parser(
            name, help=about, description=about, **with_examples(name)
        )
        parser.set_defaults(run=run)
        return parser


def with_examples(command: str) -> dict[str, Any]:
    return {
        "epilog": "examples:\n" + textwrap.indent(textwrap.dedent(EXAMPLES[command]), "  "),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def add_test_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dataset", help="test data (default: what the model was trained on)")
    parser.add_argument(
        "--label", metavar="COLUMN", help="labels of a table (default: as in training, or label)"
    )
    add_data_dir(parser)


def add_pixel_range(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pixel-range",
        nargs=2,
        type=float,
        metavar=("BLACK", "WHITE"),
        help="values of pixels (default: -1 1; 0 255 for classifiers that begin with Rescaling)",
    )


def add_data_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-dir", help="directory of TensorFlow Datasets (default: TFDS_DATA_DIR)"
    )
