"""The entry point of the `jem-tf` command: parses its arguments, then starts TensorFlow quietly.

A package of its own, so that `--help` and usage errors need no TensorFlow: importing any part of
`jem_tf` imports TensorFlow and Keras.
"""

from jem_tf_cli.command import main

__all__ = ["main"]
