"""What an export is calibrated with: temperature, OOD score and threshold, and what they achieve.

Not here: the measures (`detection/`).
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from jem_tf.data import inputs
from jem_tf.detection.calibration import (
    classification,
    confidence_of,
    fit_temperature,
    reliability,
)
from jem_tf.detection.threshold import fit_threshold
from jem_tf.detection.verdict import choose_score

MAX_EXAMPLES = 20
NUM_QUANTILES = 1001  # of the scores of the calibration data, for percentiles


@dataclass(frozen=True)
class Calibration:
    """What labelled data says about the outputs of a model."""

    temperature: float = 1.0
    kind: str = "gradient_norm"  # the score of the verdict
    threshold: float | None = None
    quantiles: tuple[float, ...] = (-np.inf, np.inf)
    metrics: dict[str, Any] | None = None
    examples: dict[str, Any] | None = None  # the body of a request
    example_labels: tuple[int, ...] = ()


def fit_calibration(model: Any, data: Any) -> Calibration:
    """Fit temperature, OOD score, its threshold and quantiles to `data`; measure the result."""
    if data is None:
        return Calibration()
    x, y = _labelled(model, data)
    kind, aurocs = choose_score(model.ood_score, x)
    scores = model.ood_score(x, kind)
    temperature = fit_temperature(model.predict(x, batch_size=256, verbose=0), y)
    first_of_class = np.unique(y, return_index=True)[1][:MAX_EXAMPLES]
    before, after = (measure(model, (x, y), t) for t in (1.0, temperature))
    return Calibration(
        temperature,
        kind,
        fit_threshold(scores),
        tuple(np.quantile(scores, np.linspace(0, 1, NUM_QUANTILES))),
        {"before": before, "after": after, "made_up_outliers": aurocs[kind]},
        {"signature_name": "serving_default", "instances": _to_lists(x[first_of_class])},
        tuple(y[first_of_class].tolist()),
    )


def measure(model: Any, data: Any, temperature: float) -> dict[str, Any]:
    """Accuracy, NLL, ECE and reliability of the probabilities at `temperature`."""
    x, y = _labelled(model, data)
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


def _to_lists(x: np.ndarray) -> list[Any]:
    """Nested lists with the seven digits that float32 has."""
    flat = [float(f"{value:.7g}") for value in x.ravel()]
    return np.array(flat).reshape(x.shape).tolist()


def _labelled(model: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = data if isinstance(data, tuple) else (data, None)
    summary = inputs.summarise(inputs.batches_of(x, y, 1024), model.num_classes)
    if summary.y is None or (summary.y < 0).any():
        raise ValueError("Data to calibrate or to test with must have a label for every row.")
    return summary.x, summary.y
