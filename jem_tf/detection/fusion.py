"""One score from many statistics, chosen for each model with made-up outliers.

Not here: the statistics (`statistics.py`), the outliers (`outliers.py`), the verdict
(`conformal.py`).

    score(x) = sum_s a_s log p_s(x) + b_s log q_s(x),    a, b >= 0

p_s is the share of held-out rows whose statistic s is at most that of x, and q_s the share whose
statistic is at least that of x: a weighted form of Fisher's combination of p-values. The weights
are those of a logistic regression that separates held-out rows from outliers made from them. They
cannot be negative, so an input that is more unusual by a statistic never scores higher. A
statistic that does not separate the outliers gets the weights zero. One that points the wrong way
for this model gets b_s instead of a_s.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from jem_tf.detection.search import count_at_most

PENALTY = 0.03  # of the squared weights; chosen on validation rows of Fashion-MNIST and digits


class Fusion(NamedTuple):
    """Sorted statistics of held-out rows `[s, m]`, and the weights of both tails `[s]`."""

    table: np.ndarray
    low: np.ndarray
    high: np.ndarray


def log_tails(values: tf.Tensor, table: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """log p and log q of `values` `[n, s]` in a `table` `[s, m]` of sorted values; `[n, s]`.

    Non-finite values are the most unusual in both tails.
    """
    finite = tf.math.is_finite(values)
    lowest, highest = (tf.transpose(tf.where(finite, values, end)) for end in (-np.inf, np.inf))
    counts = _rank(lowest, table), _rank(-highest, tf.reverse(-table, axis=[1]))
    total = tf.cast(tf.shape(table)[1] + 1, tf.float32)
    low, high = (tf.transpose(tf.math.log((1.0 + count) / total)) for count in counts)
    return low, high


def _rank(values: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    """How many entries of the rows of `table` `[s, m]` are at most `values` `[s, n]`; `[s, n]`.

    Between two entries it is interpolated: rounding errors must not change an answer.
    """
    index = count_at_most(table, values)
    last = tf.shape(table)[1] - 1
    below, above = (
        tf.gather(table, tf.clip_by_value(i, 0, last), batch_dims=1) for i in (index - 1, index)
    )
    between = (index > 0) & (index <= last)
    fraction = (values - below) / tf.maximum(above - below, 1e-30)
    return tf.cast(index, tf.float32) + tf.where(between, fraction, 0.0)


def objections(values: tf.Tensor, table: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """How much each of the statistics `values` `[n, s]` lowers the score; `[n, s]`, at least 0."""
    log_p, log_q = log_tails(values, table)
    return -(low * log_p + high * log_q)


def fused_score(values: tf.Tensor, table: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """The fused score of statistics `values` `[n, s]`; `[n]`, at most 0."""
    return -tf.reduce_sum(objections(values, table, low, high), axis=1)


def fit_fusion(inside: np.ndarray, outliers: dict[str, np.ndarray]) -> Fusion:
    """Choose the weights that separate rows `inside` `[m, s]` from `outliers` `[n, s]` by kind.

    All kinds of outliers together count as much as the rows, and each kind as much as another.
    """
    table = np.sort(np.where(np.isfinite(inside), inside, -np.inf), axis=0).T.astype(np.float32)
    sets = [inside, *outliers.values()]
    tails = [np.concatenate(log_tails(np.float32(values), table), axis=1) for values in sets]
    shares = [0.5, *[0.5 / len(outliers)] * len(outliers)]
    weights = np.concatenate([np.full(len(t), s / len(t)) for t, s in zip(tails, shares)])
    labels = np.repeat([0.0, 1.0], [len(inside), sum(map(len, tails[1:]))])
    coefficients = _logistic_regression(-np.concatenate(tails), labels, weights)
    low, high = np.split(coefficients.astype(np.float32), 2)
    return Fusion(table, low, high)


def _logistic_regression(x: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Coefficients, none of them negative, with an L2 `PENALTY`; `[features]`."""
    from scipy.optimize import minimize
    from scipy.special import expit

    x = x.astype(np.float64)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        bias, slopes = parameters[0], parameters[1:]
        logits = x @ slopes + bias
        error = weights * (expit(logits) - labels)
        value = (weights * (np.logaddexp(0.0, logits) - labels * logits)).sum()
        gradient = np.concatenate([[error.sum()], x.T @ error + PENALTY * slopes])
        return value + 0.5 * PENALTY * (slopes**2).sum(), gradient

    start = np.concatenate([[-1.0], np.full(x.shape[1], 0.1)])
    bounds = [(None, None), *[(0.0, None)] * x.shape[1]]
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x[1:]
