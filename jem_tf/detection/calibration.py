"""Whether predictions are right, and whether a confidence of 80 % means right in 80 % of cases.

ECE = sum over bins of (share of rows in the bin) * |accuracy - mean confidence|.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.metrics import confusion_matrix


@dataclass(frozen=True)
class Classification:
    """How well logits predict labels."""

    rows: int
    accuracy: float
    nll: float  # nats
    brier: float  # sum of squares over classes, between 0 and 2
    recall: list[float]  # for each class, nan where the labels have none of it
    precision: list[float]  # nan where it was never predicted
    confusion: list[list[int]]  # rows by label, columns by prediction


@dataclass(frozen=True)
class Reliability:
    """Confidence against accuracy; one entry of the lists for each bin that has rows."""

    ece: float
    mce: float  # the largest difference in any bin
    count: list[int]
    confidence: list[float]
    accuracy: list[float]


@dataclass(frozen=True)
class Selective:
    """Error among the rows kept when the least confident are left to a person."""

    aurc: float  # area under risk against coverage
    coverage: list[float]
    risk: list[float]


def classification(logits: np.ndarray, labels: np.ndarray) -> Classification:
    """Accuracy, likelihood and Brier score, overall and by class; every row has a label."""
    log_p = log_softmax(logits.astype(np.float64), axis=-1)
    classes, rows = log_p.shape[1], np.arange(len(labels))
    p = np.exp(log_p)
    p[rows, labels] -= 1.0
    confusion = confusion_matrix(labels, log_p.argmax(-1), labels=np.arange(classes))
    with np.errstate(invalid="ignore"):
        recall = confusion.diagonal() / confusion.sum(1)
        precision = confusion.diagonal() / confusion.sum(0)
    return Classification(
        len(labels),
        float(confusion.trace() / len(labels)),
        float(-log_p[rows, labels].mean()),
        float((p**2).sum(1).mean()),
        recall.tolist(),
        precision.tolist(),
        confusion.tolist(),
    )


def confidence_of(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest probability of each row, and whether it was right to put it there."""
    return softmax(logits.astype(np.float64), axis=-1).max(-1), logits.argmax(-1) == labels


def reliability(
    confidence: np.ndarray, right: np.ndarray, bins: int = 15, adaptive: bool = False
) -> Reliability:
    """`bins` of equal width over [0, 1], or with equally many rows if `adaptive`."""
    if adaptive:
        index = np.empty(len(confidence), int)
        index[confidence.argsort(kind="stable")] = np.arange(len(confidence)) * bins
        index //= len(confidence)
    else:
        index = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(index, minlength=bins)
    used = count > 0
    mean, accuracy = (
        np.bincount(index, v, minlength=bins)[used] / count[used] for v in (confidence, right)
    )
    gap, share = np.abs(accuracy - mean), count[used] / len(confidence)
    return Reliability(
        float((share * gap).sum()),
        float(gap.max()),
        count[used].tolist(),
        mean.tolist(),
        accuracy.tolist(),
    )


def selective(confidence: np.ndarray, right: np.ndarray, points: int = 100) -> Selective:
    """Risk against coverage, most confident rows first."""
    wrong = ~right[np.argsort(-confidence, kind="stable")]
    kept = np.arange(1, len(wrong) + 1)
    risk = np.cumsum(wrong) / kept
    shown = np.unique(np.linspace(0, len(wrong) - 1, points).astype(int))
    return Selective(float(risk.mean()), (kept[shown] / len(wrong)).tolist(), risk[shown].tolist())


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature T that gives softmax(logits / T) the best likelihood."""

    def nll(log_t: float) -> float:
        log_p = log_softmax(logits.astype(np.float64) / np.exp(log_t), axis=-1)
        return -log_p[np.arange(len(labels)), labels].mean()

    return float(np.exp(minimize_scalar(nll, bounds=(-4.0, 4.0), method="bounded").x))


def cross_scaled(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Logits over the temperature fitted on the other half of the rows, and both temperatures.

    No row is scaled by a temperature that saw its label, so all rows can be measured.
    """
    scaled = logits.astype(np.float64)
    temperatures = []
    for half in (0, 1):
        temperature = fit_temperature(logits[1 - half :: 2], labels[1 - half :: 2])
        scaled[half::2] /= temperature
        temperatures.append(temperature)
    return scaled, temperatures
