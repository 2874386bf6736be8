"""Statistics of an input that say how unusual it is: of logits, of the gradient, of features.

Not here: which of them are used (`fusion.py`). All are higher for inputs like the training data,
for a model for which they work; `fusion.py` finds out. The `fit_*` functions take arrays, the
others tensors.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from jem_tf import energy as maths

NEIGHBOUR = 10  # the distance to this neighbour counts
KEPT_VARIANCE = 0.95  # of the features, in the principal subspace
# Root mean square change of a value by `step_uphill`, in half ranges of the data; chosen on
# validation rows of Fashion-MNIST.
ASCENT = 0.1


class Gaussians(NamedTuple):
    """Gaussians of classes with a common covariance, in coordinates in which it is 1."""

    centre: np.ndarray  # [d]
    whitening: np.ndarray  # [d, d]
    means: np.ndarray  # [classes, d]


class Subspace(NamedTuple):
    """The principal subspace of features."""

    centre: np.ndarray  # [d]
    directions: np.ndarray  # [k, d]


def single(value: np.ndarray) -> np.ndarray:
    """`value` in single precision."""
    return value.astype(np.float32)


def rounded(value: tf.Tensor | np.ndarray) -> np.ndarray:
    """`value` rounded to bfloat16, in single precision: half of its bytes are zero."""
    return tf.cast(tf.cast(value, tf.bfloat16), tf.float32).numpy()


def log_density(logits: tf.Tensor) -> tf.Tensor:
    """log p(x) + log Z, the energy score (Liu et al. 2020); `[n]`."""
    return maths.log_density(logits)


def max_probability(logits: tf.Tensor) -> tf.Tensor:
    """max_y p(y | x) (Hendrycks and Gimpel 2017), as log(p / (1 - p)), which does not round to 1;
    `[n]`."""
    largest, others = tf.split(tf.math.top_k(logits, logits.shape[-1]).values, [1, -1], axis=-1)
    return largest[:, 0] - tf.reduce_logsumexp(others, axis=-1)


def step_uphill(x: tf.Tensor, gradient: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """`x` after a step of a fixed length uphill, by the `gradient` of log p(x) in units of `scale`.

    How much log p(x) rises is a statistic: little at the data, which a model has near its modes.
    """
    count = math.prod(x.shape[1:])
    norm = tf.norm(tf.reshape(gradient, [-1, count]), axis=1)
    length = ASCENT * math.sqrt(count) / tf.maximum(norm, 1e-12)
    return x + scale * tf.reshape(length, [-1, *[1] * (len(x.shape) - 1)]) * gradient


def fit_gaussians(
    features: np.ndarray, labels: np.ndarray, keep: Callable[[np.ndarray], np.ndarray] = single
) -> Gaussians:
    """Fit the means of the classes of `features` `[n, d]`, and their covariance (Ledoit-Wolf).

    `keep` is what is kept of the whitening matrix: all, or what is `rounded`.
    """
    from sklearn.covariance import LedoitWolf

    centre, deviation = features.mean(0), features.std(0) + 1e-6
    unit = (features - centre) / deviation
    classes, index = np.unique(labels, return_inverse=True)
    means = np.stack([unit[index == k].mean(0) for k in range(len(classes))])
    covariance = LedoitWolf(assume_centered=True).fit(unit - means[index]).covariance_
    whitening = np.linalg.inv(np.linalg.cholesky(covariance)).T  # its product is the precision
    kept = keep(whitening / deviation[:, None])
    means = (means * deviation) @ kept
    return Gaussians(centre.astype(np.float32), kept, means.astype(np.float32))


def mahalanobis(features: tf.Tensor, gaussians: Gaussians) -> tf.Tensor:
    """-min_k (f - m_k)' C^-1 (f - m_k) (Lee et al. 2018); `[n]`."""
    white = (features - gaussians.centre) @ gaussians.whitening
    means = gaussians.means
    products = white @ tf.transpose(means) - 0.5 * tf.reduce_sum(tf.square(means), axis=1)
    nearest = tf.gather(means, tf.argmax(products, axis=1))
    return -tf.reduce_sum(tf.square(white - nearest), axis=1)


def fit_subspace(features: np.ndarray) -> Subspace:
    """Fit the directions with `KEPT_VARIANCE` of the variance of `features` `[n, d]`."""
    centre = features.mean(0)
    _, sizes, directions = np.linalg.svd(features - centre, full_matrices=False)
    kept = np.cumsum(sizes**2) / max((sizes**2).sum(), 1e-12)
    count = 1 + int(np.searchsorted(kept, KEPT_VARIANCE))
    return Subspace(centre.astype(np.float32), directions[:count].astype(np.float32))


def residual(features: tf.Tensor, subspace: Subspace) -> tf.Tensor:
    """-||f - its projection on the principal subspace|| (ViM, Wang et al. 2022); `[n]`."""
    centred = features - subspace.centre
    inside = centred @ tf.transpose(subspace.directions)
    return -tf.norm(centred - inside @ subspace.directions, axis=1)


def fit_bank(features: np.ndarray, max_bytes: float) -> np.ndarray:
    """Rows of `features` `[n, d]` spread evenly over them, with length 1, in `max_bytes`."""
    rows = max(NEIGHBOUR, int(max_bytes // (4 * features.shape[1])))
    return unit_rows(features[:: -(-len(features) // rows)])


def unit_rows(features: np.ndarray) -> np.ndarray:
    """`features` `[n, d]` divided by their Euclidean lengths."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return (features / np.maximum(lengths, 1e-12)).astype(np.float32)


def neighbours(features: tf.Tensor, bank: tf.Tensor) -> tf.Tensor:
    """-||u - v||^2 for the unit vector u of f and the 10th nearest v in the `bank` `[m, d]`, which
    is 2 cos - 2 (Sun et al. 2022); `[n]`."""
    unit = tf.math.l2_normalize(features, axis=1)
    nearest = tf.math.top_k(unit @ tf.transpose(bank), NEIGHBOUR).indices[:, -1]
    return -tf.reduce_sum(tf.square(unit - tf.gather(bank, nearest)), axis=1)
