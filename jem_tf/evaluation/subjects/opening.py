"""From a model, a path or an address to a `Subject`.

Not here: the kinds of subject (`in_process.py`, `signature_models.py`).
"""

from pathlib import Path
from typing import Any

import keras

from jem_tf.client.endpoints import is_endpoint
from jem_tf.evaluation.subjects.base import Subject
from jem_tf.evaluation.subjects.in_process import KerasSubject
from jem_tf.evaluation.subjects.signature_models import EndpointSubject, SavedModelSubject
from jem_tf.model import loading
from jem_tf.saved_model import layout

RUN_CONFIG = "config.json"  # a directory with this file is a run directory


def of(model: keras.Model, name: str = "model", scale: Any = 1.0) -> Subject:
    """Return `model`, a `JEM` or any Keras classifier, as a subject.

    ```python
    evaluation.evaluate(evaluation.of(model, "mine"), data.load("digits"), "report")
    ```

    Args:
        model: a Keras model that ends in logits or in probabilities.
        name: the heading of its column in the report.
        scale: the unit of each input feature in the gradient norm; a `JEM` has its own.
    """
    return KerasSubject(model, name, scale)


def open_subject(target: str | Path, scale: Any = 1.0) -> Subject:
    """Open the subject at `target`: a run directory, a `.keras` file, a SavedModel, an endpoint.

    ```python
    evaluation.open_subject("runs/digits")
    evaluation.open_subject("grpc://localhost:8500/digits")
    ```

    `scale` is the unit of each input feature in the gradient norm of a `.keras` file that holds
    a plain classifier.
    """
    if is_endpoint(target):
        return EndpointSubject(str(target))
    path = Path(target)
    if path.is_dir():
        if (path / RUN_CONFIG).is_file():
            return of(loading.load(path), str(path))
        _check_saved_model(path)
        return SavedModelSubject(path)
    if not path.is_file():
        raise ValueError(f"There is no trained model at {str(path)!r}.")
    return of(loading.load_any(path), str(path), scale)


def _check_saved_model(directory: Path) -> None:
    try:
        layout.newest(directory)
    except ValueError:
        raise ValueError(
            f"{str(directory)!r} is neither a run directory (no {RUN_CONFIG}) nor a SavedModel."
        ) from None
