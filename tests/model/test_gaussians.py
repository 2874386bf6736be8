"""Training with default settings recovers Gaussians of many dimensions, and says when it cannot."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf import SGLD

ROWS, BATCH = 10_000, 256


class Quadratic(keras.layers.Layer):
    """Logits -sum_d k_d (x_d - m_d)² / 2 + b, with m, k and b for each class."""

    def __init__(self, classes, shared):
        super().__init__()
        self.classes, self.shapes = classes, 1 if shared else classes

    def build(self, shape):
        kwargs = {"shape": (self.shapes, shape[-1]), "initializer": "zeros"}
        self.mean, self.log_curvature = (self.add_weight(**kwargs) for _ in range(2))
        self.bias = self.add_weight(shape=(self.classes,), initializer="zeros")

    def call(self, x):
        k = tf.exp(self.log_curvature)
        squares = x**2 @ tf.transpose(k) - 2.0 * x @ tf.transpose(k * self.mean)
        return -0.5 * (squares + tf.reduce_sum(k * self.mean**2, axis=1)) + self.bias


class OfJointDensity(keras.layers.Layer):
    """From log p(x, y) to logits T log p(x) + log p(y | x), the optimum of training."""

    def call(self, log_p):
        marginal = tf.reduce_logsumexp(log_p, axis=-1, keepdims=True)
        return SGLD().temperature * marginal + tf.nn.log_softmax(log_p)


def train(x, y, classes, shared, epochs=20, rate=5e-2, **options):
    """Train with the default sampler, buffer and noise; return the model, means and precisions."""
    keras.utils.set_random_seed(0)
    layer = Quadratic(classes, shared)
    layers = [layer] if shared else [layer, OfJointDensity()]
    model = jem_tf.JEM(keras.Sequential([keras.Input(x.shape[1:]), *layers]), seed=0, **options)
    schedule = keras.optimizers.schedules.CosineDecay(rate, epochs * -(-len(x) // BATCH))
    model.compile(keras.optimizers.Adam(schedule))
    logs = model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0).history
    unit = model.sampler.temperature if shared else 1.0
    return model, logs, layer.mean.numpy(), np.exp(layer.log_curvature.numpy()) / unit


def noisy(model, variance):
    """The variance of data with the noise that training adds."""
    return variance + (model.input_noise * model.input_range.scale.numpy()) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [2, 64, 784, 3072])
def test_training_recovers_a_gaussian(dimensions):
    """Means within 0.1 standard deviations, precisions within 10 %.

    The step size is tuned to a bias of 5 % of the variance. The rest is Monte Carlo error: the last
    updates average over some thousand chains.
    """
    rng = np.random.default_rng(0)
    mean, deviation = 0.5 * rng.normal(size=dimensions), np.exp(0.25 * rng.normal(size=dimensions))
    x = (mean + deviation * rng.normal(size=(ROWS, dimensions))).astype(np.float32)
    model, logs, learned_mean, precision = train(x, rng.integers(0, 2, ROWS), 2, True)
    variance = noisy(model, deviation**2)
    error = (learned_mean[0] - mean) / np.sqrt(variance)
    ratio = precision[0] * variance
    print(f"\n{dimensions}: precision x {ratio.mean():.3f}, trusted {logs['trusted'][-1]:.3f}")
    assert np.sqrt((error**2).mean()) < 0.1
    assert ratio.mean() == pytest.approx(1.0, abs=0.1) and ratio.std() < 0.1
    assert logs["trusted"][-1] > 0.9


def draw_mixture():
    """Three classes of 64 features with shares 0.5, 0.3 and 0.2: rows, labels, means, variances."""
    rng = np.random.default_rng(0)
    means, deviations = rng.normal(size=(3, 64)), np.array([0.5, 0.7, 1.0])[:, None]
    y = rng.choice(3, ROWS, p=[0.5, 0.3, 0.2])
    x = (means[y] + deviations[y] * rng.normal(size=(ROWS, 64))).astype(np.float32)
    return x, y, means, deviations**2 * np.ones((3, 64))


@pytest.mark.slow
def test_training_recovers_a_mixture():
    """Precisions within 10 %, as of one Gaussian: by default, chains start in all of its parts."""
    x, y, means, variance = draw_mixture()
    model, logs, learned_means, precision = train(x, y, 3, False, epochs=30)
    variance = noisy(model, variance)
    error = (learned_means - means) / np.sqrt(variance)
    ratio = precision * variance
    print(f"\nprecisions x {ratio.mean(1).round(3)}, trusted {logs['trusted'][-1]:.3f}")
    assert (np.sqrt((error**2).mean(1)) < 0.1).all()
    np.testing.assert_allclose(ratio.mean(1), 1.0, atol=0.1)
    assert logs["trusted"][-1] > 0.9
    assert (model.predict(x, verbose=0).argmax(1) == y).mean() > 0.99


@pytest.mark.slow
def test_fit_says_that_chains_are_not_in_all_parts_of_a_mixture():
    """In 64 dimensions chains do not cross from one part to another. Where they end is decided by
    where they start, and uniform starts reach the broad part most often."""
    x, y, _, variance = draw_mixture()
    with pytest.warns(UserWarning, match="samples are of class 2, and 20% of the data.*Gaussian"):
        *_, precision = train(x, y, 3, False, epochs=20, start=jem_tf.Uniform())
    assert precision[2].mean() * variance[2].mean() > 1.5  # too many chains make it too narrow


def test_fit_says_that_the_density_is_not_learned():
    """Chains that cannot move stay far below the data."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2000, 64)).astype(np.float32), rng.integers(0, 2, 2000)
    backbone = keras.Sequential([keras.Input((64,)), Quadratic(2, shared=True)])
    sampler, start = jem_tf.SGLD(2, step_size=1e-6), jem_tf.Uniform()
    model = jem_tf.JEM(backbone, sampler=sampler, start=start, seed=0)
    model.compile(keras.optimizers.Adam(0.05))
    with pytest.warns(UserWarning, match="The density is not learned: samples are"):
        model.fit(x, y, batch_size=100, epochs=5, verbose=0)


def test_fit_is_quiet_about_a_healthy_density(make_model, blobs):
    model = make_model()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(*blobs, batch_size=50, epochs=12, verbose=0)
