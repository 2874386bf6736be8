"""Measures of classification and calibration, and temperature scaling.

Not here: out-of-distribution detection (the other modules of this package).
ECE = sum over bins of (share of rows in the bin) * |accuracy - mean confidence|.
"""

from dataclasses import dataclass

import numpy as np

MAX_CALIBRATION_ROWS = 10_000  # of the validation data, in exports and evaluations
LOG_TEMPERATURE_BOUNDS = (-4.0, 4.0)  # of the search in `fit_temperature`


@dataclass(frozen=True)
class Classification:
    """Accuracy, likelihood and Brier score of logits.

    ```python
    classification(model.predict(x), y).accuracy
    ```
    """

    rows: int
    accuracy: float
    nll: float  # nats
    brier: float  # sum of squares over classes, between 0 and 2
    recall: list[float]  # of each class; NaN for classes without a label
    precision: list[float]  # of each class; NaN for classes that are never predicted
    confusion: list[list[int]]  # rows by label, columns by prediction


@dataclass(frozen=True)
class Reliability:
    """Confidence against accuracy; the lists have one entry for each bin that is not empty.

    ```python
    reliability(*confidence_of(logits, labels)).ece
    ```
    """

    ece: float
    by_chance: float  # the ECE to expect of as many rows if confidence is the true probability
    mce: float  # the largest difference in any bin
    count: list[int]
    confidence: list[float]
    accuracy: list[float]


@dataclass(frozen=True)
class RiskCoverage:
    """Error rate among the most confident rows, for a growing share of the rows.

    ```python
    risk_coverage(*confidence_of(logits, labels)).aurc
    ```
    """

    aurc: float  # area under the curve of risk against coverage
    coverage: list[float]
    risk: list[float]


def classification(logits: np.ndarray, labels: np.ndarray) -> Classification:
    """Measure `logits` `[n, classes]` against `labels` `[n]`; every row must have a label."""
    from scipy.special import log_softmax

    log_p = log_softmax(logits.astype(np.float64), axis=-1)
    classes, rows = log_p.shape[1], np.arange(len(labels))
    error = np.exp(log_p)
    error[rows, labels] -= 1.0
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (labels, log_p.argmax(-1)), 1)
    with np.errstate(invalid="ignore"):
        recall = confusion.diagonal() / confusion.sum(1)
        precision = confusion.diagonal() / confusion.sum(0)
    return Classification(
        len(labels),
        float(confusion.trace() / len(labels)),
        float(-log_p[rows, labels].mean()),
        float((error**2).sum(1).mean()),
        recall.tolist(),
        precision.tolist(),
        confusion.tolist(),
    )


def confidence_of(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest probability of each row, and whether that prediction is correct."""
    from scipy.special import softmax

    return softmax(logits.astype(np.float64), axis=-1).max(-1), logits.argmax(-1) == labels


def reliability(
    confidence: np.ndarray, correct: np.ndarray, bins: int = 15, adaptive: bool = False
) -> Reliability:
    """Compare `confidence` `[n]` with the accuracy of `correct` `[n]` in each of `bins`.

    The bins have equal width over [0, 1], or hold equally many rows if `adaptive`.
    """
    if adaptive:
        index = np.empty(len(confidence), int)
        index[confidence.argsort(kind="stable")] = np.arange(len(confidence)) * bins
        index //= len(confidence)
    else:
        index = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(index, minlength=bins)
    used = count > 0
    mean, accuracy = (
        np.bincount(index, v, minlength=bins)[used] / count[used] for v in (confidence, correct)
    )
    gap, share = np.abs(accuracy - mean), count[used] / len(confidence)
    # The number of correct rows in a bin is nearly normal, with the variance sum c (1 - c).
    variance = np.bincount(index, confidence * (1.0 - confidence), minlength=bins)
    return Reliability(
        float((share * gap).sum()),
        float(np.sqrt(2.0 / np.pi * variance).sum() / len(confidence)),
        float(gap.max()),
        count[used].tolist(),
        mean.tolist(),
        accuracy.tolist(),
    )


def risk_coverage(confidence: np.ndarray, correct: np.ndarray, points: int = 100) -> RiskCoverage:
    """Measure risk against coverage at up to `points` coverages, most confident rows first."""
    wrong = ~correct[np.argsort(-confidence, kind="stable")]
    covered = np.arange(1, len(wrong) + 1)
    risk = np.cumsum(wrong) / covered
    index = np.unique(np.linspace(0, len(wrong) - 1, points).astype(int))
    coverage = covered[index] / len(wrong)
    return RiskCoverage(float(risk.mean()), coverage.tolist(), risk[index].tolist())


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature T that maximises the likelihood of softmax(logits / T)."""
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    def nll(log_t: float) -> float:
        log_p = log_softmax(logits.astype(np.float64) / np.exp(log_t), axis=-1)
        return -log_p[np.arange(len(labels)), labels].mean()

    return float(np.exp(minimize_scalar(nll, bounds=LOG_TEMPERATURE_BOUNDS, method="bounded").x))
