"""Whether a confidence of 80 % means right in 80 % of cases.

ECE = sum over bins of (share of rows in the bin) * |accuracy - mean confidence|.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax


@dataclass(frozen=True)
class Classification:
    """How well logits predict labels."""

    accuracy: float
    nll: float
    ece: float


def classification(logits: np.ndarray, labels: np.ndarray, bins: int = 15) -> Classification:
    """Accuracy, mean negative log-likelihood in nats and expected calibration error."""
    log_p = log_softmax(logits.astype(np.float64), axis=-1)
    right = log_p.argmax(-1) == labels
    nll = -log_p[np.arange(len(labels)), labels].mean()
    confidence = np.exp(log_p.max(-1))
    return Classification(
        float(right.mean()), float(nll), expected_calibration_error(confidence, right, bins)
    )


def expected_calibration_error(confidence: np.ndarray, right: np.ndarray, bins: int = 15) -> float:
    """ECE with `bins` of equal width over [0, 1]."""
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    difference = np.bincount(index, right - confidence, minlength=bins)
    return float(np.abs(difference).sum() / len(confidence))
