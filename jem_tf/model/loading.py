"""Trained models from files: Keras files, SavedModels of Keras 2, and run directories.

Not here: what else a run directory holds (`training/run_directory.py`).
"""

import os
import tempfile
import warnings
import zipfile
from pathlib import Path

import keras

from jem_tf._tf import checkpoints
from jem_tf.model.jem import JEM

MODEL_FILE = "model.keras"
CHECKPOINTS = "checkpoints"


def load(path: str | Path) -> JEM:
    """Load the `JEM` in a `.keras` file or a run directory.

    ```python
    model = jem_tf.load("runs/digits")
    ```

    A run that is not finished gives the model of its last checkpoint, with a warning.
    """
    path = Path(path)
    file = path / MODEL_FILE if path.is_dir() else path
    if file.is_file():
        model = read_model(file)
        if not isinstance(model, JEM):
            raise ValueError(f"{str(file)!r} holds a {type(model).__name__}, not a JEM.")
        return model
    checkpoint = checkpoints.newest(path / CHECKPOINTS)
    if checkpoint is None:
        raise ValueError(f"There is no trained model at {str(file)!r}.")
    warnings.warn(f"{str(path)!r} is not finished: using its last checkpoint.", stacklevel=2)
    model = read_model(checkpoint[0] / checkpoints.MODEL)
    model.optimizer.finalize_variable_values(model.trainable_variables)  # averaged weights
    return model if isinstance(model, JEM) else JEM(model)


def load_any(path: str | Path) -> keras.Model:
    """Load a `JEM` or any Keras model: of a run, a `.keras` or `.h5` file, or a SavedModel that
    Keras 2 has saved."""
    path = Path(path)
    if path.is_file():
        return read_model(path, compile=False)
    return _read_saved_model(path) if (path / "saved_model.pb").is_file() else load(path)


def load_classifier(path: str | Path) -> keras.Model:
    """As `load_any`; of a `JEM`, its backbone."""
    model = load_any(path)
    return model.backbone if isinstance(model, JEM) else model


def _read_saved_model(directory: Path) -> keras.Model:
    """Keras 3 does not read SavedModels; Keras 2 does, and writes files that Keras 3 reads."""
    import tf_keras

    if not (directory / "keras_metadata.pb").is_file():
        raise ValueError(
            f"The SavedModel {str(directory)!r} holds signatures, and no Keras model that could be "
            "trained or changed: name the .keras file or the run that it was made from."
        )
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "model.h5"
        with warnings.catch_warnings(action="ignore"):  # that the format is old
            tf_keras.models.load_model(directory, compile=False).save(file)
        return read_model(file, compile=False)


def read_model(file: Path, compile: bool = True) -> keras.Model:
    """Load the Keras model in `file`; `ValueError` if there is none."""
    try:
        return keras.saving.load_model(file, compile=compile)
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{str(file)!r} is not a model that Keras can load: {error}") from error


def save(model: keras.Model, path: Path) -> None:
    """Save `model` to `path`, which is replaced at once: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part.keras")
    model.save(temporary)
    os.replace(temporary, path)
