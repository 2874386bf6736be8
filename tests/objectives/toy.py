"""A network of one number with three classes, whose densities a grid integrates.

The losses and gradients of objectives are compared with calculations of another kind on it.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

import jem_tf

GRID = np.linspace(-8, 8, 4001).astype(np.float32)[:, None]
STEP = float(GRID[1, 0] - GRID[0, 0])
CLASSES = 3


def make_toy_model(**options):
    """A model whose log densities fall as -x², so that all of them can be normalised."""
    inputs = keras.Input((1,))
    hidden = keras.layers.Dense(8, "tanh")(inputs)
    outputs = keras.layers.Dense(CLASSES)(hidden) - 0.5 * keras.ops.square(inputs)
    model = jem_tf.JEM(keras.Model(inputs, outputs), input_noise=0.0, seed=0, **options)
    model.compile(keras.optimizers.SGD(0.1))
    return model


def draw_data():
    """60 rows of three overlapping classes."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % CLASSES
    return (rng.normal(size=(60, 1)) + y[:, None] - 1).astype(np.float32), y


def batch_of(model, x, y):
    return model._unpack((tf.constant(x), tf.constant(y)))


def value_and_gradient(model, loss):
    """The value of `loss()`, and its gradient with respect to the weights as one vector."""
    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, model.backbone.trainable_weights)
    return float(value), np.concatenate([np.ravel(g) for g in gradients])


def integrate(f):
    """The logarithm of the integral of exp f over the grid."""
    return tf.reduce_logsumexp(f, axis=0) + np.log(STEP)


def quantiles(log_density, n):
    """`n` quantiles of a density on the grid, which stand for it as samples do."""
    p = np.exp(log_density - logsumexp(log_density))
    below = np.cumsum(p) - p / 2
    return np.interp((np.arange(n) + 0.5) / n, below, GRID[:, 0]).astype(np.float32)[:, None]


def check_by_differences(model, loss, gradient, step=1e-2):
    """Assert that two values of the loss give the slope along a random direction."""
    rng = np.random.default_rng(1)
    weights = model.backbone.trainable_weights
    direction = [rng.normal(size=w.shape).astype(np.float32) for w in weights]
    values = []
    for sign in (1, -1):
        for weight, part in zip(weights, direction):
            weight.assign_add(sign * step * part)
        values.append(float(loss()))
        for weight, part in zip(weights, direction):
            weight.assign_sub(sign * step * part)
    slope = gradient @ np.concatenate([part.ravel() for part in direction])
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, rel=0.02, abs=1e-3)
