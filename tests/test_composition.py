"""Compositions against closed forms: products of Gaussians are Gaussians."""

import keras
import numpy as np
import pytest

import jem_tf


@keras.saving.register_keras_serializable("jem_tf_tests")
class Squares(keras.layers.Layer):
    """Logits -(x - m_k)^2 / (2 s^2), summed over the values: a Gaussian for each class."""

    def __init__(self, means, spread, **kwargs):
        super().__init__(**kwargs)
        self.means, self.spread = np.asarray(means, np.float32), spread

    def call(self, x):
        away = keras.ops.expand_dims(x, 1) - self.means
        return -keras.ops.sum(away**2, -1) / (2 * self.spread**2)


def gaussians(means, spread, **options):
    backbone = keras.Sequential([keras.Input((2,)), Squares(means, spread)])
    sampler = jem_tf.SGLD(10, step_size=0.01, noise="tied")
    model = jem_tf.JEM(backbone, sampler=sampler, seed=0, **options)
    model.adapt(np.array([[-4.0, -4.0], [4.0, 4.0]], np.float32))
    return model


def test_energies_are_weighted_sums():
    one, other = gaussians([[0, 0], [1, 1]], 1.0), gaussians([[2, 0], [0, 2], [1, 0]], 0.5)
    both = jem_tf.compose([one, other], [1.0, 0.3])
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    expected = one.energy(x) + 0.3 * other.energy(x)
    np.testing.assert_allclose(both.energy(x), expected, rtol=1e-5)
    given = one.energy(x, np.ones(20, int)) + 0.3 * other.energy(x, np.full(20, 2))
    np.testing.assert_allclose(both.energy(x, (1, 2)), given, rtol=1e-5)


def test_samples_are_those_of_the_product():
    """N(a, s^2) N(b, t^2) ~ N(m, v). Unadjusted steps of size h have the variance
    v / (1 - h / 2v), x in units of 4; 4 000 chains tell a mean to 0.01, a variance to 2 %."""
    one, other = gaussians([[0, 0], [1, -1]], 1.0), gaussians([[2, 1], [-2, 0]], 0.5)
    both = jem_tf.compose([one, other])
    found = both.sample(4000, labels=(1, 0), steps=300, seed=1)
    precision = 1 / 1.0 + 1 / 0.25
    mean = (np.array([1, -1]) + np.array([2, 1]) / 0.25) / precision
    np.testing.assert_allclose(found.mean(0), mean, atol=0.05)
    spread = 1 / precision / (1 - 0.01 * 4**2 * precision / 2)
    np.testing.assert_allclose(found.var(0), spread, rtol=0.08)
    again = both.sample(4000, labels=(1, 0), steps=300, seed=1)
    np.testing.assert_array_equal(found, again)


def test_what_does_not_fit_together_is_named():
    one, three = gaussians([[0, 0], [1, 1]], 1.0), gaussians([[0, 0], [1, 1], [2, 2]], 1.0)
    with pytest.raises(ValueError, match=r"models with \[2, 3\] classes"):
        jem_tf.compose([one, three]).sample(2, labels=1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        jem_tf.compose([one, three]).energy(np.zeros((1, 2)), (2, 0))
    with pytest.raises(ValueError, match="2 models, weights"):
        jem_tf.compose([one, three], [1.0])
    other = gaussians([[0, 0], [1, 1]], 1.0)
    other.adapt(np.array([[0.0, 0.0], [1.0, 1.0]], np.float32))
    with pytest.raises(ValueError, match="same range"):
        jem_tf.compose([one, other])
    wide = jem_tf.JEM(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))
    with pytest.raises(ValueError, match=r"same inputs.*\(2,\), \(3,\)"):
        jem_tf.compose([one, wide])
