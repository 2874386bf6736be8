"""Statistics of an input that say how unusual it is: of logits, of the gradient, of features.

Not here: which of them are used (`fusion.py`). All are higher for inputs like the training data,
for a model for which they work; `fusion.py` finds out. The `fit_*` functions take arrays, the
others tensors.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from jem_tf import energy as maths

NEIGHBOUR = 10  # the distance to this neighbour counts
KEPT_VARIANCE = 0.95  # of the features, in the principal subspace


class Gaussians(NamedTuple):
    """Gaussians of classes with a common covariance, in coordinates in which it is 1."""

    centre: np.ndarray  # [d]
    whitening: np.ndarray  # [d, d]
    means: np.ndarray  # [classes, d]


class Subspace(NamedTuple):
    """The principal subspace of features."""

    centre: np.ndarray  # [d]
    directions: np.ndarray  # [k, d]


def log_density(logits: tf.Tensor) -> tf.Tensor:
    """log p(x) + log Z, the energy score (Liu et al. 2020); `[n]`."""
    return maths.log_density(logits)


def max_probability(logits: tf.Tensor) -> tf.Tensor:
    """max_y p(y | x) (Hendrycks and Gimpel 2017), as log(p / (1 - p)), which does not round to 1;
    `[n]`."""
    largest, others = tf.split(tf.math.top_k(logits, logits.shape[-1]).values, [1, -1], axis=-1)
    return largest[:, 0] - tf.reduce_logsumexp(others, axis=-1)


def fit_gaussians(features: np.ndarray, labels: np.ndarray) -> Gaussians:
    """Fit the means of the classes of `features` `[n, d]`, and their covariance (Ledoit-Wolf)."""
    from sklearn.covariance import LedoitWolf

    centre, deviation = features.mean(0), features.std(0) + 1e-6
    unit = (features - centre) / deviation
    classes, index = np.unique(labels, return_inverse=True)
    means = np.stack([unit[index == k].mean(0) for k in range(len(classes))])
    covariance = LedoitWolf(assume_centered=True).fit(unit - means[index]).covariance_
    whitening = np.linalg.inv(np.linalg.cholesky(covariance)).T  # its product is the precision
    arrays = centre, whitening / deviation[:, None], means @ whitening
    return Gaussians(*(array.astype(np.float32) for array in arrays))


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
