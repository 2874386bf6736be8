"""Densities with known moments, for tests of samplers."""

import numpy as np
import tensorflow as tf
from scipy import stats

SEED = tf.constant([3, 5])
MEAN = np.array([1.0, -2.0], np.float32)
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]], np.float32)
LEFT_SHARE = 0.3 * stats.norm.cdf(2) + 0.7 * stats.norm.cdf(-2)  # of `mixture` below 0


def gaussian(x):
    """log N(MEAN, COVARIANCE), up to a constant."""
    centred = x - MEAN
    precision = tf.constant(np.linalg.inv(COVARIANCE))
    return -0.5 * tf.einsum("ni,ij,nj->n", centred, precision, centred)


def standard_normal(x):
    """log N(0, 1) of rows with one value, up to a constant."""
    return -0.5 * x[:, 0] ** 2


def mixture(x):
    """log of 0.3 N(-2, 1) + 0.7 N(2, 1), up to a constant."""
    parts = [tf.math.log(w) - 0.5 * (x[:, 0] - m) ** 2 for w, m in ((0.3, -2.0), (0.7, 2.0))]
    return tf.reduce_logsumexp(tf.stack(parts), axis=0)


def run(sampler, log_density, x, steps=None):
    """Run `sampler` from `x` in a graph; return the ends of the chains and the diagnostics."""
    return tf.function(lambda x: sampler.run(log_density, x, SEED, steps))(x)


def check_gaussian(sampler):
    """Assert that chains of `sampler` have the mean and covariance of `gaussian`.

    10 000 chains: standard errors 0.014 (mean) and about 0.03 (covariance). Five of them each.
    """
    x, _ = run(sampler, gaussian, tf.zeros([10_000, 2]))
    np.testing.assert_allclose(x.numpy().mean(0), MEAN, atol=0.07)
    np.testing.assert_allclose(np.cov(x.numpy().T), COVARIANCE, atol=0.15)


def check_mixture(sampler):
    """Assert that chains of `sampler` find the weights 0.3 and 0.7 of `mixture`.

    They start in equal shares in both modes. The standard error is 0.008 with 3 000 chains, and
    what 3 000 steps leave of the start is as much.
    """
    start = tf.constant(np.repeat([[-2.0], [2.0]], 1500, axis=0), tf.float32)
    x, _ = run(sampler, mixture, start, steps=3000)
    assert abs((x.numpy() < 0).mean() - LEFT_SHARE) < 0.035
