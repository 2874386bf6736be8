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
        offset = keras.ops.expand_dims(x, 1) - self.means
        return -keras.ops.sum(offset**2, -1) / (2 * self.spread**2)


def make_gaussians(means, spread):
    backbone = keras.Sequential([keras.Input((2,)), Squares(means, spread)])
    sampler = jem_tf.SGLD(10, step_size=0.01, temperature=1.0)
    model = jem_tf.JEM(backbone, sampler=sampler, seed=0)
    model.adapt(np.array([[-4.0, -4.0], [4.0, 4.0]], np.float32))
    return model


def test_energies_are_weighted_sums():
    first = make_gaussians([[0, 0], [1, 1]], 1.0)
    second = make_gaussians([[2, 0], [0, 2], [1, 0]], 0.5)
    both = jem_tf.compose([first, second], [1.0, 0.3])
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    expected = first.energy(x) + 0.3 * second.energy(x)
    np.testing.assert_allclose(both.energy(x), expected, rtol=1e-5)
    of_classes = first.energy(x, np.ones(20, int)) + 0.3 * second.energy(x, np.full(20, 2))
    np.testing.assert_allclose(both.energy(x, (1, 2)), of_classes, rtol=1e-5)


def test_samples_are_those_of_the_product():
    """N(a, s²) N(b, t²) is proportional to N(m, v). Unadjusted steps of size h have the variance
    v / (1 - h / 2v), with x in units of 4. With 4 000 chains the standard error of a mean is 0.01,
    that of a variance 2 %."""
    first = make_gaussians([[0, 0], [1, -1]], 1.0)
    second = make_gaussians([[2, 1], [-2, 0]], 0.5)
    both = jem_tf.compose([first, second])
    samples = both.sample(4000, labels=(1, 0), steps=300, seed=1)
    precision = 1 / 1.0 + 1 / 0.25
    mean = (np.array([1, -1]) + np.array([2, 1]) / 0.25) / precision
    np.testing.assert_allclose(samples.mean(0), mean, atol=0.05)
    variance = 1 / precision / (1 - 0.01 * 4**2 * precision / 2)
    np.testing.assert_allclose(samples.var(0), variance, rtol=0.08)
    np.testing.assert_array_equal(samples, both.sample(4000, labels=(1, 0), steps=300, seed=1))


def test_errors_say_what_does_not_fit():
    two, three = (make_gaussians([[0, 0], [1, 1], [2, 2]][:n], 1.0) for n in (2, 3))
    with pytest.raises(ValueError, match=r"models with \[2, 3\] classes"):
        jem_tf.compose([two, three]).sample(2, labels=1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        jem_tf.compose([two, three]).energy(np.zeros((1, 2)), (2, 0))
    with pytest.raises(ValueError, match="2 models, weights"):
        jem_tf.compose([two, three], [1.0])
    other_range = make_gaussians([[0, 0], [1, 1]], 1.0)
    other_range.adapt(np.array([[0.0, 0.0], [1.0, 1.0]], np.float32))
    with pytest.raises(ValueError, match="same range"):
        jem_tf.compose([two, other_range])
    wide = jem_tf.JEM(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))
    with pytest.raises(ValueError, match=r"same inputs.*\(2,\), \(3,\)"):
        jem_tf.compose([two, wide])
