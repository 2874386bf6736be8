"""What an export is calibrated with: the temperature and the detector, and what they achieve.

Not here: the measures and the detector (`detection/`).
"""

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jem_tf.data import inputs
from jem_tf.data.labels import check_labels
from jem_tf.detection.calibration import (
    classification,
    confidence_of,
    fit_temperature,
    reliability,
)
from jem_tf.detection.conformal import TooFewRows
from jem_tf.model.detecting import read_rows
from jem_tf.model.fitting import unlearned_density

MAX_EXAMPLES = 20


@dataclass(frozen=True)
class Calibration:
    """What labelled data says about the outputs of a model."""

    temperature: float = 1.0
    detector: dict[str, Any] | None = None  # what it uses, in words; None without a verdict
    metrics: dict[str, Any] | None = None
    examples: dict[str, Any] | None = None  # the body of a request
    example_labels: tuple[int, ...] = ()


def fit_calibration(model: Any, data: Any, reference: Any = None) -> Calibration:
    """Fit the temperature to `data`, and the detector unless it has been; measure the result."""
    if data is None:
        return Calibration(detector=_describe(model))
    x, y = _labelled(model, data)
    examples, labels = _examples(model, data, x, y)
    fit_verdict(model, (x, y), reference)
    x = model.encode(x)  # once, for all that follows
    if model.objective.uses_chains and (problem := unlearned_density(model, x)) is not None:
        warnings.warn(problem, stacklevel=3)
    temperature = fit_temperature(model.predict(x, batch_size=256, verbose=0), y)
    before, after = (_measure(model, x, y, t) for t in (1.0, temperature))
    return Calibration(
        temperature,
        _describe(model),
        {"before": before, "after": after},
        examples,
        labels,
    )


def fit_verdict(model: Any, data: tuple[np.ndarray, np.ndarray], reference: Any = None) -> None:
    """Fit the detector of `model` unless it has been; warn if there are too few rows for it."""
    if model.detector.fitted:
        return
    try:
        model.fit_detector(*data, reference=reference)
    except TooFewRows as error:
        warnings.warn(f"The model has no verdict, and flags no input. {error}", stacklevel=3)


def _describe(model: Any) -> dict[str, Any] | None:
    return model.detector.describe() if model.detector.fitted else None


def measure(model: Any, data: Any, temperature: float) -> dict[str, Any]:
    """Accuracy, NLL, ECE and reliability of the probabilities at `temperature`."""
    return _measure(model, *_labelled(model, data), temperature)


def _measure(model: Any, x: Any, y: np.ndarray, temperature: float) -> dict[str, Any]:
    logits = model.predict(x, batch_size=256, verbose=0) / temperature
    result = classification(logits, y)
    bins = asdict(reliability(*confidence_of(logits, y)))
    return {
        "rows": len(x),
        "accuracy": result.accuracy,
        "nll": result.nll,
        "ece": bins.pop("ece"),
        "reliability": bins,
    }


def _examples(
    model: Any, data: Any, x: np.ndarray, y: np.ndarray
) -> tuple[dict[str, Any] | None, tuple[int, ...]]:
    """The body of a request with a row of each class, and the classes.

    `x` and `y` are the rows that the model is calibrated with. Vectors are no examples: raw inputs
    are then those of `data`, and there are none if `data` is a stream.
    """
    if model.encoder is not None and not model.detector.reads_encoder:
        x, y = inputs.as_pair(data)
        if inputs.is_stream(x):
            return None, ()
        x, y = np.asarray(x), check_labels(np.asarray(y), model.num_classes)
    first_of_class = np.unique(y, return_index=True)[1][:MAX_EXAMPLES]
    chosen = x[first_of_class]
    texts = [v.decode() if isinstance(v, bytes) else str(v) for v in chosen.ravel().tolist()]
    instances = _to_lists(chosen) if chosen.dtype.kind in "fiub" else texts
    request = {"signature_name": "serving_default", "instances": instances}
    return request, tuple(y[first_of_class].tolist())


def _to_lists(x: np.ndarray) -> list[Any]:
    """Nested lists with the seven digits that float32 has."""
    flat = [float(f"{value:.7g}") for value in x.ravel()]
    return np.array(flat).reshape(x.shape).tolist()


def _labelled(model: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = read_rows(model, *inputs.as_pair(data))
    if (y < 0).any():
        raise ValueError("Data to calibrate or to test with must have a label for every row.")
    return x, y
