"""What scores a batch: the signature `serving_default` of a model, wherever the model is.

Not here: reading rows (`data/rows.py`), writing scores (`parts.py`).
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf.client.endpoints import is_endpoint, open_endpoint
from jem_tf.client.wire import bytes_array
from jem_tf.data.sources import PIXEL_RANGE
from jem_tf.detection.calibration import MAX_CALIBRATION_ROWS
from jem_tf.model import JEM, loading
from jem_tf.model.classifiers import expected_pixels
from jem_tf.model.detecting import MAX_REFERENCE
from jem_tf.saved_model import layout
from jem_tf.saved_model.fitted import Calibration, fit_calibration
from jem_tf.saved_model.loading import load_saved_model
from jem_tf.saved_model.signatures import Signatures
from jem_tf.training import RunSettings, run_directory

SIGNATURE = "serving_default"
PixelRange = tuple[float, ...] | None  # black and white
OUTPUTS = ("probabilities", "class_id", "energy", "ood_score", "percentile", "is_ood")
REQUEST_SECONDS = 600.0
Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Scorer:
    """A model as a function of batches.

    ```python
    open_scorer("saved_models/digits").score(x)["energy"]
    ```

    Attributes:
        score: inputs `[n, ...]` to the outputs of `serving_default`.
        class_names: of the outputs; None: the outputs name their classes.
        shape: of one input; None: not known.
        dtype: of the inputs: numbers, or strings for a model of text.
        pixel_range: the values of black and white pixels; None: no images, or not known.
        score_files: contents of image files to outputs, for models that decode files themselves.
        false_alarm_rate: of the verdict; None: no verdict, or not known.
    """

    score: Callable[[np.ndarray], Outputs]
    class_names: Sequence[str] | None
    shape: tuple[int, ...] | None
    pixel_range: PixelRange
    score_files: Callable[[Sequence[bytes]], Outputs] | None = None
    dtype: tf.DType = tf.float32
    false_alarm_rate: float | None = None


def open_scorer(
    model: Any, data_dir: str | None = None, pixel_range: Sequence[float] | None = None
) -> Scorer:
    """Open `model`: a run directory, a `.keras` file, a SavedModel, an endpoint or a Keras model.

    A run is calibrated on its validation data, as for an export; `data_dir` is where that is now.
    `pixel_range` takes the place of what the model says about its pixels.
    """
    scorer = _open(model, data_dir)
    return scorer if pixel_range is None else replace(scorer, pixel_range=tuple(pixel_range))


def _open(model: Any, data_dir: str | None) -> Scorer:
    if isinstance(model, keras.Model):
        return _from_model(model)
    if is_endpoint(model):
        return _from_endpoint(str(model))
    path = Path(model)
    if run_directory.is_run(path):
        return _from_run(path, data_dir)
    if path.is_dir():
        return _from_saved_model(layout.newest(path))
    if not path.is_file():
        raise ValueError(f"There is no trained model at {str(path)!r}.")
    return _from_model(loading.load_any(path))


def _from_saved_model(version: Path) -> Scorer:
    loaded = load_saved_model(version)
    function = loaded.signatures.get(SIGNATURE)
    outputs = set() if function is None else set(function.structured_outputs)
    if missing := set(OUTPUTS) - outputs:
        raise ValueError(
            f"The SavedModel {str(version)!r} must be an export of jem_tf: its signature "
            f"{SIGNATURE} has no {', '.join(sorted(missing))}. `jem_tf.export` writes one from "
            "any Keras classifier."
        )
    metadata = layout.read_metadata(version)

    def score(x: np.ndarray) -> Outputs:
        return _to_numpy(function(inputs=tf.constant(x)))

    score.keep = loaded  # type: ignore[attr-defined]  # its variables live as long as it does
    pixel_range = metadata.get("pixel_range")
    shape = tuple(metadata["input_shape"])
    dtype = function.structured_input_signature[1]["inputs"].dtype
    names = metadata["class_names"]
    pixel_range = pixel_range and tuple(pixel_range)
    rate = _false_alarm_rate(metadata.get("detector"))
    return Scorer(score, names, shape, pixel_range, dtype=dtype, false_alarm_rate=rate)


def _from_run(run: Path, data_dir: str | None) -> Scorer:
    model = loading.load(run)
    try:
        data = run_directory.load_data(run, data_dir)
    except (ValueError, OSError) as error:
        warnings.warn(
            f"Probabilities are not calibrated and there is no verdict, as the training data of "
            f"{str(run)!r} cannot be loaded: {error}",
            stacklevel=3,
        )
        names = run_directory.read_json(run / run_directory.CONFIG)["class_names"]
        source = RunSettings.read(run).data
        assert source is not None
        return _from_model(model, names, source.pixel_range)
    x, y = data.arrays("validation", MAX_CALIBRATION_ROWS)
    reference = data.arrays("train", MAX_REFERENCE)
    calibration = fit_calibration(model, (x[y >= 0], y[y >= 0]), reference)
    return _in_process(model, calibration, data.class_names, data.pixel_range)


def _from_model(
    model: keras.Model, class_names: Sequence[str] | None = None, pixel_range: PixelRange = None
) -> Scorer:
    """A model without data: probabilities are as the network gives them."""
    if not isinstance(model, JEM):
        model = JEM.from_classifier(model, objective="cross_entropy")
    names = class_names or [str(i) for i in range(model.num_classes)]
    if pixel_range is None and len(model.raw_shape) == 3:
        pixel_range = expected_pixels(model) or PIXEL_RANGE
    return _in_process(model, Calibration(), names, pixel_range)


def _in_process(
    model: JEM, calibration: Calibration, names: Sequence[str], pixel_range: Any
) -> Scorer:
    signatures = Signatures(model, calibration, tuple(names), 1, 1, pixel_range)
    dtype = signatures.dtype
    spec = tf.TensorSpec([None, *signatures.shape], dtype)
    function = tf.function(signatures.classify, [spec], autograph=False)
    shape = tuple(signatures.shape)

    def score(x: np.ndarray) -> Outputs:
        return _to_numpy(function(tf.constant(x)))

    rate = _false_alarm_rate(calibration.detector)
    return Scorer(score, list(names), shape, pixel_range, dtype=dtype, false_alarm_rate=rate)


def _from_endpoint(address: str) -> Scorer:
    client = open_endpoint(address, timeout=REQUEST_SECONDS)
    signature = client.signatures()[SIGNATURE]
    if missing := set(OUTPUTS) - set(signature.outputs):
        raise ValueError(
            f"{address} must serve an export of jem_tf: its signature {SIGNATURE} has no "
            f"{', '.join(sorted(missing))}."
        )
    sizes = (signature.inputs["inputs"][1] or (None, None))[1:]
    shape = tuple(size for size in sizes if size is not None)
    return Scorer(
        lambda x: client.call(SIGNATURE, inputs=x),
        None,
        shape if len(shape) == len(sizes) else None,
        None,
        lambda files: client.call(f"{SIGNATURE}_bytes", image_bytes=bytes_array(list(files))),
        tf.as_dtype(signature.inputs["inputs"][0]),
    )


def _false_alarm_rate(detector: dict[str, Any] | None) -> float | None:
    return None if detector is None else detector.get("false_alarm_rate")


def _to_numpy(outputs: dict[str, tf.Tensor]) -> Outputs:
    return {name: outputs[name].numpy() for name in OUTPUTS}
