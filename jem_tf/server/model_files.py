"""Files of models, read by TensorFlow's file systems: `gs://` and `s3://` work where they are.

Not here: the layout of a model directory (`layout.py` of `jem_tf.saved_model`). Paths are strings,
because `pathlib` would change `gs://bucket` to `gs:/bucket`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from jem_tf.saved_model import layout


def join(path: str | os.PathLike[str], *names: str) -> str:
    """Return a path below `path`."""
    return "/".join([os.fspath(path).rstrip("/"), *names])


def absolute(path: str) -> str:
    """Return an absolute path; URIs are returned unchanged."""
    return path if "://" in path else os.path.abspath(path)


def versions(directory: str) -> dict[int, str]:
    """Return the version directories below `directory`, by number.

    Raise `OSError` if it cannot be read.
    """
    with _os_errors():
        names = layout.version_names(name.rstrip("/") for name in tf.io.gfile.listdir(directory))
        paths = {number: join(directory, name) for number, name in names.items()}
        return {number: path for number, path in paths.items() if tf.io.gfile.isdir(path)}


def exists(path: str) -> bool:
    """Return whether there is a file or directory at `path`."""
    return tf.io.gfile.exists(path)


def read_bytes(path: str) -> bytes:
    """Return the content of a file; raise `OSError` if it cannot be read."""
    with _os_errors(), tf.io.gfile.GFile(path, "rb") as file:
        return file.read()


def read_json(path: str) -> dict[str, Any]:
    """Return the JSON object in a file; empty if there is none."""
    try:
        return layout.json_object(read_bytes(path))
    except OSError:
        return {}


@contextmanager
def _os_errors() -> Iterator[None]:
    try:
        yield
    except tf.errors.OpError as error:
        raise OSError(error.message) from error
