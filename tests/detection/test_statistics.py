"""Statistics of features: against scikit-learn, SciPy and closed forms."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.spatial.distance import cdist
from scipy.special import logit, softmax
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from jem_tf.detection import statistics

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 600)
MIXING = RNG.normal(size=(5, 5))
FEATURES = (RNG.normal(size=(600, 5)) + 3 * LABELS[:, None]) @ MIXING
NEW = (RNG.normal(size=(40, 5)) * 2) @ MIXING


def test_mahalanobis_is_that_of_scipy():
    gaussians = statistics.fit_gaussians(FEATURES, LABELS)
    unit = FEATURES / (FEATURES.std(0) + 1e-6)
    means = np.stack([unit[k == LABELS].mean(0) for k in range(3)])
    precision = LedoitWolf(assume_centered=True).fit(unit - means[LABELS]).precision_
    distances = cdist(NEW / (FEATURES.std(0) + 1e-6), means, "mahalanobis", VI=precision)
    expected = -(distances**2).min(1)
    computed = statistics.mahalanobis(np.float32(NEW), gaussians)
    np.testing.assert_allclose(computed, expected, rtol=1e-3)


def test_the_residual_is_that_of_principal_components():
    features = np.concatenate([FEATURES, 0.01 * RNG.normal(size=(600, 3))], axis=1)
    subspace = statistics.fit_subspace(features)
    pca = PCA(statistics.KEPT_VARIANCE).fit(features)
    assert len(subspace.directions) == pca.n_components_
    rebuilt = pca.inverse_transform(pca.transform(features))
    expected = -np.linalg.norm(features - rebuilt, axis=1)
    np.testing.assert_allclose(
        statistics.residual(np.float32(features), subspace), expected, atol=1e-3
    )


def test_neighbours_are_those_of_scikit_learn():
    bank = statistics.fit_bank(FEATURES, max_bytes=1e6)
    search = NearestNeighbors(n_neighbors=statistics.NEIGHBOUR, metric="cosine").fit(FEATURES)
    expected = -2 * search.kneighbors(NEW)[0][:, -1]  # scikit-learn's distance is 1 - cos
    np.testing.assert_allclose(statistics.neighbours(np.float32(NEW), bank), expected, atol=1e-5)


@pytest.mark.parametrize("max_bytes, rows", [(1e6, 600), (20 * 100, 100), (0, 10)])
def test_the_bank_has_a_size(max_bytes, rows):
    bank = statistics.fit_bank(FEATURES, max_bytes)
    assert rows / 2 <= len(bank) <= max(rows, statistics.NEIGHBOUR)
    np.testing.assert_allclose(np.linalg.norm(bank, axis=1), 1.0, rtol=1e-5)


def test_the_largest_probability_is_its_log_odds():
    logits = 3 * RNG.normal(size=(20, 4)).astype("f4")
    expected = logit(softmax(logits.astype("f8"), axis=1).max(1))
    np.testing.assert_allclose(statistics.max_probability(logits), expected, rtol=1e-4, atol=1e-5)
    assert statistics.max_probability(np.float32([[90.0, 0.0]])).numpy() == 90.0


def test_a_step_uphill_has_a_fixed_length():
    """Of log p(x) = -|x|^2 / 2 in units of `scale`: the score is -x / scale^2."""
    scale = np.float32([[0.5, 2.0, 1.0], [1.0, 4.0, 3.0]])
    x = scale * RNG.normal(size=(7, 2, 3)).astype("f4")
    unit, gradient = x / scale, -x / scale  # scale times the score
    step = statistics.step_uphill(tf.constant(x), tf.constant(gradient), scale) / scale - unit
    lengths = np.sqrt((unit**2).sum((1, 2), keepdims=True))
    expected = -statistics.ASCENT * np.sqrt(6) * unit / lengths
    np.testing.assert_allclose(step, expected, rtol=1e-3, atol=1e-5)
    flat = statistics.step_uphill(tf.constant(x), tf.zeros_like(gradient), scale)
    np.testing.assert_array_equal(flat, x)  # no direction is uphill
