"""The `jem-tf` command."""

from jem_tf.cli.parser import main

__all__ = ["main"]
