"""The flags of the commands that export and serve models, and of those that use a server."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from jem_tf_cli.arguments import Commands, add_data_dir, add_pixel_range
from jem_tf_cli.startup import import_tensorflow
from jem_tf_cli.types import boolean, positive_integer, positive_number


def add_export(commands: Commands) -> None:
    parser = commands.add(
        "export", "Write a model as the next version of a SavedModel.", "exporting:export"
    )
    parser.add_argument(
        "model", type=Path, help="run directory, or any Keras classifier: .keras or .h5 file"
    )
    parser.add_argument(
        "--calibrate",
        metavar="DATA",
        help="data set to calibrate on: validation rows, and training rows as reference (default: "
        "that of the run; required for files)",
    )
    parser.add_argument(
        "--label", metavar="COLUMN", help="labels of a table (default: as in training, or label)"
    )
    parser.add_argument(
        "--columns",
        nargs="+",
        metavar="COLUMN",
        help="inputs of a table (default: as in training, or all others)",
    )
    add_pixel_range(parser)
    parser.add_argument("--out", type=Path, help="model directory (default: saved_models/DATASET)")
    parser.add_argument(
        "--pytorch", type=Path, metavar="FILE", help="write a PyTorch checkpoint instead"
    )
    parser.add_argument("--refine-steps", type=positive_integer, default=10, help="(default: 10)")
    parser.add_argument("--sample-steps", type=positive_integer, default=400, help="(default: 400)")
    parser.add_argument(
        "--max-image-pixels",
        type=positive_integer,
        default=4096 * 4096,
        metavar="N",
        help="largest PNG or JPEG that the model decodes (default: 16777216, 4096 x 4096)",
    )
    parser.add_argument(
        "--compact",
        action="store_true",
        help="round weights to bfloat16 and limit the detector to 1 MB, for small archives",
    )
    parser.add_argument(
        "--tflite", action="store_true", help="also write assets.extra/model.tflite, for LiteRT"
    )
    parser.add_argument(
        "--no-examples",
        dest="examples",
        action="store_false",
        help="do not store validation rows, which the inspector shows to everyone who reaches it",
    )
    add_data_dir(parser)

    parser = commands.add(
        "inspect", "Print signatures, thresholds and metrics of an export.", "exporting:inspect"
    )
    parser.add_argument("directory", type=Path, help="model directory, or one version of it")


def add_serve(commands: Commands, with_flags: bool) -> None:
    parser = commands.add("serve", "Serve SavedModels by TF Serving's protocol.", "serving:serve")
    parser.add_argument(
        "directory",
        nargs="?",
        help="model directory or URI; sets --model-base-path and --model-name",
    )
    if with_flags:  # the flags are the fields of the server's options
        import_tensorflow()
        from jem_tf.server import flags

        for field in dataclasses.fields(flags.Options):
            _add_flag(parser, field.name, field.default, field.metadata["help"])
        parser.add_argument(
            "--no-inspector", dest="inspector", action="store_false", help="no page at /"
        )
        for name in flags.IGNORED:
            dashed = f"--{name.replace('_', '-')}"
            parser.add_argument(dashed, nargs="?", const="", help=argparse.SUPPRESS)

    parser = commands.add(
        "gateway",
        "Forward requests to a TF Serving, and count out-of-distribution inputs.",
        "serving:gateway",
    )
    parser.add_argument(
        "--upstream", default="localhost:8500", help="gRPC of TF Serving, host:port"
    )
    parser.add_argument(
        "--upstream-rest", default="localhost:8501", help="REST API of TF Serving, host:port"
    )
    parser.add_argument("--host", default="127.0.0.1", help="to listen at (default: 127.0.0.1)")
    parser.add_argument(
        "--port", type=positive_integer, default=8510, help="of gRPC (default: 8510)"
    )
    parser.add_argument(
        "--rest-api-port",
        type=positive_integer,
        default=8511,
        help="of REST and metrics (default: 8511)",
    )
    parser.add_argument(
        "--allowed-hosts",
        default="",
        help="names of the gateway, by commas, besides localhost and addresses; *: any",
    )
    parser.add_argument(
        "--auth-token-file", default="", help="file with a bearer token that requests must have"
    )
    parser.add_argument(
        "--enable-reload-config",
        action="store_true",
        help="forward HandleReloadConfigRequest, which replaces the served models",
    )


def add_clients(commands: Commands) -> None:
    parser = commands.add("load", "Measure the throughput of a served model.", "serving:load")
    _add_endpoint(parser)
    parser.add_argument("--signature", default="serving_default", help="(default: serving_default)")
    parser.add_argument(
        "--clients", nargs="+", type=positive_integer, default=[32], help="at a time (default: 32)"
    )
    parser.add_argument("--seconds", type=positive_number, default=10.0, help="(default: 10)")
    parser.add_argument(
        "--rows", type=positive_integer, default=1, help="in a request (default: 1)"
    )

    parser = commands.add("predict", "Classify image files with a served model.", "serving:predict")
    parser.add_argument("images", nargs="+", type=Path, help="PNG or JPEG files")
    _add_endpoint(parser)
    parser.add_argument("--version", type=int, help="(default: the newest)")
    parser.add_argument("--label", help="of a version")
    parser.add_argument(
        "--timeout", type=positive_number, default=60.0, help="seconds (default: 60)"
    )
    parser.add_argument("--ca", type=Path, help="PEM file of the authority of the server")
    parser.add_argument("--certificate", type=Path, help="PEM file of the client certificate")
    parser.add_argument("--key", type=Path, help="PEM file of the client key")
    parser.add_argument("--token-file", type=Path, help="file with the bearer token of the server")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each image")


def _add_endpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="name of the model on the server")
    parser.add_argument(
        "--address",
        default="localhost:8500",
        help="host:port of gRPC (default: localhost:8500), or grpcs://, http://, https://",
    )


def _add_flag(parser: argparse.ArgumentParser, name: str, default: Any, about: str) -> None:
    """Add a flag of the server."""
    kind = type(default)
    suffix = f" (default: {default})" if default != "" and "(default" not in about else ""
    options: dict[str, Any] = {"type": kind}
    if kind is bool:
        options = {"type": boolean, "nargs": "?", "const": True, "metavar": "BOOL"}
    dashed = f"--{name.replace('_', '-')}"
    parser.add_argument(dashed, default=default, help=about + suffix, **options)
