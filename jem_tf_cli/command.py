"""Runs a command of `jem-tf`, and returns its exit code.

Not here: flags and their help (`parser.py`), what a command does (`jem_tf/cli/`).
"""

import importlib
import sys

from jem_tf_cli.parser import make_parser
from jem_tf_cli.startup import import_tensorflow


def main(argv: list[str] | None = None) -> int:
    """Run the command in `argv`; return the exit code."""
    argv = [_with_dashes(word) for word in (sys.argv[1:] if argv is None else argv)]
    arguments = make_parser(argv).parse_args(argv)
    arguments.argv = argv
    import_tensorflow()
    module, _, function = arguments.run.partition(":")
    try:
        getattr(importlib.import_module(f"jem_tf.cli.{module}"), function)(arguments)
    except KeyboardInterrupt as stop:
        print(f"\n{str(stop) or 'Interrupted.'}", file=sys.stderr)
        return getattr(stop, "exit_code", 130)
    except (ValueError, OSError) as error:
        print(f"jem-tf: {error}", file=sys.stderr)
        return 2
    return 0


def _with_dashes(word: str) -> str:
    """`word` with dashes in its flag: the flags of TF Serving have underscores."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("--") else word
