"""How well a score separates in-distribution from out-of-distribution inputs.

Not here: the scores (`energy.py`) and the threshold that exports use (`jem_tf/detection/`).
AUROC = P(score of a random in-distribution input > score of a random out-of-distribution input).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, roc_auc_score

INTERVAL = (0.025, 0.975)  # quantiles of the bootstrap AUROCs
FALSE_NEGATIVE_RATE = 0.05  # of the threshold at which `fpr95` is measured


@dataclass(frozen=True)
class Detection:
    """Measures of a score that is higher for in-distribution inputs, the positives.

    ```python
    detection(model.ood_score(x_test), model.ood_score(noise)).auroc
    ```
    """

    auroc: float
    low: float  # 95 % bootstrap interval of the AUROC
    high: float
    aupr: float
    fpr95: float  # false positive rate at a true positive rate of 95 %
    inside: int  # number of in-distribution scores
    outside: int  # number of out-of-distribution scores
    non_finite: int  # scores that are not finite; they are replaced by the lowest


def detection(
    in_scores: np.ndarray, out_scores: np.ndarray, resamples: int = 200, seed: int = 0
) -> Detection:
    """Measure how well scores separate two sets.

    Args:
        in_scores: scores `[n]` of in-distribution inputs, which should be higher.
        out_scores: scores `[m]` of out-of-distribution inputs.
        resamples: bootstrap resamples for the interval of the AUROC; 0 gives NaN.
        seed: of the bootstrap.
    """
    positives = len(in_scores)
    labels = np.repeat([1, 0], [positives, len(out_scores)])
    scores = np.concatenate([in_scores, out_scores]).astype(np.float64)
    finite = np.isfinite(scores)
    if not finite.all():  # +inf, too: no in-distribution input has such a score
        lowest = scores[finite].min(initial=0.0) - 1.0
        scores = np.where(finite, scores, lowest)
    aurocs = list(_bootstrap_aurocs(scores, positives, resamples, np.random.default_rng(seed)))
    low, high = np.quantile(aurocs, INTERVAL) if aurocs else (np.nan, np.nan)
    threshold = np.quantile(scores[:positives], FALSE_NEGATIVE_RATE)
    return Detection(
        float(roc_auc_score(labels, scores)),
        float(low),
        float(high),
        float(average_precision_score(labels, scores)),
        float((scores[positives:] >= threshold).mean()),
        positives,
        len(out_scores),
        int((~finite).sum()),
    )


def oscr(in_scores: np.ndarray, correct: np.ndarray, out_scores: np.ndarray) -> float:
    """The open-set classification rate: the area under the share of in-distribution inputs that
    are accepted and classified correctly, by the share of out-of-distribution inputs accepted.

    ```python
    oscr(model.ood_score(x_test), model.predict(x_test).argmax(1) == y_test, model.ood_score(noise))
    ```

    It is the AUROC of a perfect classifier, and at most the accuracy.
    """
    ranks = rankdata(np.concatenate([in_scores, out_scores]))[: len(in_scores)]
    above = ranks - rankdata(in_scores)  # out-of-distribution scores below each; ties count half
    return float((above * correct).sum() / (len(in_scores) * len(out_scores)))


def _bootstrap_aurocs(
    scores: np.ndarray, positives: int, resamples: int, rng: np.random.Generator
) -> Iterator[float]:
    """Yield AUROCs of bootstrap resamples of `scores`, of which the first are `positives`.

    The scores are sorted once: a resample changes only how often each value occurs.
    """
    _, rank = np.unique(scores, return_inverse=True)
    in_ranks, out_ranks = rank[:positives], rank[positives:]
    size = rank.max() + 1
    for _ in range(resamples):
        in_counts = np.bincount(rng.choice(in_ranks, len(in_ranks)), minlength=size)
        out_counts = np.bincount(rng.choice(out_ranks, len(out_ranks)), minlength=size)
        out_below = np.cumsum(out_counts) - out_counts / 2  # ties count half
        yield float(in_counts @ out_below / (len(in_ranks) * len(out_ranks)))
