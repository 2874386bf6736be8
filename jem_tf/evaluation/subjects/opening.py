"""From a model, a path or an address to the `Subject` that is there."""

from pathlib import Path
from typing import Any

import keras

from jem_tf.client.client import SCHEMES
from jem_tf.evaluation.subjects.in_process import InProcess, Subject
from jem_tf.evaluation.subjects.signature_models import Exported, Remote


def of(model: keras.Model, name: str = "model", scale: Any = 1.0) -> Subject:
    """A Keras model as a subject."""
    return InProcess(model, name, scale)


def open_subject(target: str | Path, scale: Any = 1.0) -> Subject:
    """The subject at `target`: a run directory, a `.keras` file, a SavedModel, or an endpoint."""
    if str(target).partition(":")[0] in SCHEMES:
        return Remote(str(target))
    path = Path(target)
    if path.is_dir() and not (path / "config.json").is_file():
        try:
            return Exported(path)
        except ValueError as error:
            if "no SavedModel" not in str(error):
                raise
            raise ValueError(
                f"{str(path)!r} is neither a run directory (no config.json) nor a SavedModel."
            ) from None
    from jem_tf.training import run_directory as runs

    if path.is_dir():
        return of(runs.load(path), str(path))
    if not path.is_file():
        raise ValueError(f"There is no trained model at {str(path)!r}.")
    return of(runs.read_model(path), str(path), scale)
