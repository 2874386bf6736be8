"""Imports TensorFlow without its start-up messages."""

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


def import_tensorflow() -> None:
    """Import TensorFlow, and hide its start-up messages unless the import fails."""
    # Level 3 hides C++ errors too: TensorFlow raises the real ones as exceptions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if "tensorflow" not in sys.modules:
        with _stderr_on_failure():
            importlib.import_module("tensorflow").config.list_physical_devices()


@contextmanager
def _stderr_on_failure() -> Iterator[None]:
    """Hide what is written to the file descriptor of stderr, unless the block raises.

    TensorFlow writes messages about oneDNN and missing GPUs before its log level has any effect.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        except BaseException:
            captured.seek(0)
            os.write(stderr, captured.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
