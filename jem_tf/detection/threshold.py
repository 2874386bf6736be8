"""The threshold below which a score flags an input as out-of-distribution.

Not here: the scores (`energy.py`), which are higher for inputs like the training data.
threshold = the `FALSE_ALARM_RATE` quantile of the scores of held-out, in-distribution data.
"""

import numpy as np

FALSE_ALARM_RATE = 0.05  # share of in-distribution inputs that the threshold flags


def fit_threshold(scores: np.ndarray) -> float:
    """Return the threshold for `scores` `[n]` of in-distribution data.

    ```python
    threshold = fit_threshold(model.ood_score(x_validation))
    is_flagged(model.ood_score(x), threshold)
    ```

    A share `FALSE_ALARM_RATE` of `scores` lies below the threshold. NaN scores are ignored.
    """
    return float(np.nanquantile(scores, FALSE_ALARM_RATE))


def is_flagged(scores: np.ndarray, threshold: float) -> np.ndarray:
    """Return whether each score is out-of-distribution, `[n]` bool; non-finite scores are."""
    return ~(np.isfinite(scores) & (scores >= threshold))
