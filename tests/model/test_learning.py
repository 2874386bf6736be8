"""Learning truth in the plane, where Z is a sum over a grid."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import jem_tf
from jem_tf.energy import log_density

CENTRES = np.array([[-1.2, 0.0], [1.2, 0.8]])
COVARIANCE = np.array([[0.25, 0.1], [0.1, 0.3]])
SIDE = np.linspace(-4, 4, 161)
GRID = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(-1, 2).astype(np.float32)
CELL = (SIDE[1] - SIDE[0]) ** 2


def draw(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    noise = rng.multivariate_normal([0, 0], COVARIANCE, size=n)
    return (CENTRES[y] + noise).astype(np.float32), y


def true_log_density(x):
    parts = [multivariate_normal(c, COVARIANCE).logpdf(x) for c in CENTRES]
    return logsumexp(parts, axis=0) - np.log(2)


def exact_log_density(model, x):
    """log p(x) with log Z from the grid."""
    log_z = logsumexp(-model.energy(GRID)) + np.log(CELL)
    return -model.energy(x) - log_z


def toy(**options):
    """A network and a fixed quadratic, so that there is a density before training too."""
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(64, activation="silu")(inputs)
    hidden = keras.layers.Dense(64, activation="silu")(hidden)
    squares = keras.ops.sum(keras.ops.square(inputs), axis=-1, keepdims=True)
    outputs = keras.layers.Dense(2)(hidden) - 0.5 * squares
    return jem_tf.JEM(keras.Model(inputs, outputs), input_noise=0.0, seed=3, **options)


@pytest.mark.parametrize(
    "sampler",
    [
        jem_tf.SGLD(20, step_size=0.003, noise="tied"),
        pytest.param(jem_tf.MALA(20, step_size=0.01), marks=pytest.mark.slow),
    ],
    ids=["sgld", "mala"],
)
def test_training_reaches_the_true_densitys_likelihood(sampler):
    x, y = draw(4000, seed=0)
    model = toy(sampler=sampler, buffer=jem_tf.ReplayBuffer(1000))
    model.adapt(np.array([[-3.0, -3.0], [3.0, 3.0]], np.float32))
    schedule = keras.optimizers.schedules.CosineDecay(5e-3, 800, alpha=0.05)
    model.compile(keras.optimizers.Adam(schedule))
    held_out, labels = draw(4000, seed=1)
    before = exact_log_density(model, held_out).mean()
    model.fit(x, y, batch_size=200, epochs=40, verbose=0)
    after = exact_log_density(model, held_out).mean()
    truth = true_log_density(held_out).mean()
    assert after > before + 0.5
    assert truth - 0.15 < after < truth + 0.05  # no model beats the truth but by chance
    accuracy = (model.predict(held_out, verbose=0).argmax(1) == labels).mean()
    bayes = np.mean(
        np.argmax([multivariate_normal(c, COVARIANCE).logpdf(held_out) for c in CENTRES], 0)
        == labels
    )
    assert accuracy > bayes - 0.01


def test_the_update_points_up_the_exact_likelihood():
    """One SGD step on unlabelled data, against the gradient of log p(x) by enumeration."""
    x, _ = draw(4000, seed=0)
    model = toy(
        sampler=jem_tf.MALA(400, step_size=0.02),
        buffer=jem_tf.ReplayBuffer(4000, reinit_probability=0.0),
    )
    model.adapt(np.array([[-3.0, -3.0], [3.0, 3.0]], np.float32))
    with tf.GradientTape() as tape:
        f = log_density(model.backbone(GRID))
        log_z = tf.reduce_logsumexp(f) + np.log(CELL)
        likelihood = tf.reduce_mean(log_density(model.backbone(x))) - log_z
    exact = _flat(tape.gradient(likelihood, model.trainable_weights))
    before = _flat(model.get_weights())
    model.compile(keras.optimizers.SGD(1e-3))
    model.fit(x, np.full(len(x), -1), batch_size=4000, epochs=1, verbose=0)
    change = _flat(model.get_weights()) - before
    cosine = change @ exact / np.linalg.norm(change) / np.linalg.norm(exact)
    assert cosine > 0.9
    np.testing.assert_allclose(np.linalg.norm(change), 1e-3 * np.linalg.norm(exact), rtol=0.15)


def _flat(arrays):
    return np.concatenate([np.ravel(a) for a in arrays])
