"""Conformal p-values: how unusual a score is among scores of held-out, in-distribution data.

Not here: the scores (`detector.py`), which are higher for inputs like the training data.

    p = (1 + #{calibration scores <= score}) / (n + 1)

For exchangeable data P(p <= a) <= a (Bates et al. 2023). Given n calibration scores, the share of
in-distribution inputs with p <= a has the distribution Beta(k, n + 1 - k), k = floor(a (n + 1)).
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.detection.search import count_at_most

FALSE_ALARM_RATE = 0.05  # share of in-distribution inputs that are flagged, by default


class TooFewRows(ValueError):
    """There are too few validation rows for a false alarm rate."""


def rows_needed(false_alarm_rate: float) -> int:
    """The smallest number of calibration rows with which any input can be flagged.

    ```python
    rows_needed(0.05)    # 19
    ```
    """
    return max(1, math.ceil(1.0 / false_alarm_rate - 1e-9) - 1)


def sorted_table(scores: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
    """Calibration `scores` `[m]` in order, `[1, m]`, or a row for each of `groups` `[m]` of
    integers; shorter rows are padded with infinity."""
    groups = np.zeros(len(scores), int) if groups is None else groups
    counts = np.bincount(groups)
    table = np.full((len(counts), counts.max()), np.inf, np.float32)
    for group, count in enumerate(counts):
        table[group, :count] = np.sort(scores[groups == group])
    return table


def p_values(scores: Any, table: Any, groups: Any = None) -> tf.Tensor:
    """Conformal p-values of `scores` `[n]`, given the `sorted_table` of calibration scores; `[n]`.

    ```python
    p_values(model.ood_score(x), sorted_table(model.ood_score(x_validation)))
    ```

    With `groups` `[n]`, such as predicted classes, a score is compared with the calibration scores
    of its group only (Mondrian). NaN counts as the lowest score.
    """
    scores, table = (tf.cast(v, tf.float32) for v in (scores, table))
    scores = tf.where(tf.math.is_nan(scores), -np.inf, scores)
    rows, columns = table.shape[0], tf.shape(scores)[0]
    unusual = count_at_most(table, tf.repeat(scores[tf.newaxis], rows, axis=0))
    total = count_at_most(table, tf.fill([rows, 1], tf.float32.max))
    ratios = tf.cast(1 + unusual, tf.float32) / tf.cast(1 + total, tf.float32)
    if groups is None:
        return ratios[0]
    return tf.gather_nd(ratios, tf.stack([tf.cast(groups, tf.int32), tf.range(columns)], axis=1))
