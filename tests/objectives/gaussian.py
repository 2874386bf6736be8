"""A Gaussian in three dimensions, and a quadratic network, whose best weights are known."""

import keras
import numpy as np
import tensorflow as tf

import jem_tf

MEANS, VARIANCES = np.array([1.0, 0.0, -3.0]), np.array([0.25, 1.0, 4.0])
HALF_RANGES = 4 * np.sqrt(VARIANCES)  # the range that models are told
ROWS = 100_000


class Quadratic(keras.layers.Layer):
    """Logits -(x - m)² / 2v, the same for both classes, so that exp f is a Gaussian."""

    def build(self, shape):
        self.mean = self.add_weight(shape=shape[1:], initializer="zeros")
        self.log_variance = self.add_weight(shape=shape[1:], initializer="zeros")

    def call(self, x):
        squares = (x - self.mean) ** 2 * keras.ops.exp(-self.log_variance)
        f = -0.5 * keras.ops.sum(squares, axis=-1, keepdims=True)
        return keras.ops.concatenate([f, f], axis=-1)


def loss_and_slopes(objective, means, variances, rows=ROWS):
    """The generative loss of rows of the Gaussian for a network with these `means` and
    `variances`, and its slopes by the means, in standard deviations, and log variances."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(rows, 3)) * np.sqrt(VARIANCES) + MEANS).astype(np.float32)
    layer = Quadratic()
    network = keras.Sequential([keras.Input((3,)), layer])
    model = jem_tf.JEM(network, objective=objective, input_noise=0.0, seed=0)
    model.input_range.adapt(x, (MEANS - HALF_RANGES, MEANS + HALF_RANGES))
    layer.mean.assign(means)
    layer.log_variance.assign(np.log(variances))
    batch = model._unpack((tf.constant(x), tf.zeros([rows], tf.int32)))
    near = objective.negatives(model, batch, [tf.constant([1, 2]), tf.constant([3, 4])])
    with tf.GradientTape() as tape:
        loss = objective.loss(model, batch, near).loss - np.log(2)  # cross-entropy of two classes
    by_mean, by_variance = tape.gradient(loss, [layer.mean.value, layer.log_variance.value])
    return float(loss), np.stack([by_mean * np.sqrt(variances), by_variance])
