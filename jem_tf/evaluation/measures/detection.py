"""Whether a score tells inputs that belong from inputs that do not.

AUROC is the chance that a random input that belongs scores above one that does not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score


@dataclass(frozen=True)
class Detection:
    """How well a score, higher inside, separates two sets."""

    auroc: float
    low: float  # 95 % bootstrap interval of the AUROC
    high: float
    aupr: float  # inputs that belong are the positives
    fpr95: float  # share of outsiders that pass when 95 % of insiders do
    inside: int
    outside: int
    non_finite: int  # scores that were no numbers, counted as the lowest


def detection(
    inside: np.ndarray, outside: np.ndarray, resamples: int = 200, seed: int = 0
) -> Detection:
    """All measures of scores that should be higher `inside` than `outside`."""
    truth = np.repeat([1, 0], [len(inside), len(outside)])
    scores = np.concatenate([inside, outside]).astype(np.float64)
    finite = np.isfinite(scores)
    if not finite.all():  # infinite is not typical either
        lowest = scores[finite].min(initial=0.0) - 1.0
        scores = np.where(finite, scores, lowest)
    within, beyond = scores[: len(inside)], scores[len(inside) :]
    spread = list(_resampled(scores, len(inside), resamples, np.random.default_rng(seed)))
    low, high = np.quantile(spread, [0.025, 0.975]) if spread else (np.nan, np.nan)
    return Detection(
        float(roc_auc_score(truth, scores)),
        float(low),
        float(high),
        float(average_precision_score(truth, scores)),
        float((beyond >= np.quantile(within, 0.05)).mean()),
        len(inside),
        len(outside),
        int((~finite).sum()),
    )


def _resampled(
    scores: np.ndarray, inside: int, resamples: int, rng: np.random.Generator
) -> Iterator[float]:
    """AUROCs of bootstrap resamples; sorting once, as only the counts of values change."""
    _, rank = np.unique(scores, return_inverse=True)
    within, beyond = rank[:inside], rank[inside:]
    size = rank.max() + 1
    for _ in range(resamples):
        a = np.bincount(rng.choice(within, len(within)), minlength=size)
        b = np.bincount(rng.choice(beyond, len(beyond)), minlength=size)
        below = np.cumsum(b) - b / 2
        yield float(a @ below / (len(within) * len(beyond)))
