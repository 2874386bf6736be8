"""Learning a known density in the plane, where Z is a sum over a grid."""

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
EPOCHS = 15


def draw(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    noise = rng.multivariate_normal([0, 0], COVARIANCE, size=n)
    return (CENTRES[y] + noise).astype(np.float32), y


def class_log_densities(x):
    return np.array([multivariate_normal(centre, COVARIANCE).logpdf(x) for centre in CENTRES])


def exact_log_density(model, x):
    """log p(x) of a model, with log Z from the grid."""
    log_z = logsumexp(-model.energy(GRID)) + np.log(CELL)
    return -model.energy(x) - log_z


def make_toy_model(**options):
    """A network plus a fixed quadratic, so that there is a density before training too."""
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(64, activation="silu")(inputs)
    hidden = keras.layers.Dense(64, activation="silu")(hidden)
    squares = keras.ops.sum(keras.ops.square(inputs), axis=-1, keepdims=True)
    outputs = keras.layers.Dense(2)(hidden) - 0.5 * squares
    model = jem_tf.JEM(keras.Model(inputs, outputs), input_noise=0.0, seed=3, **options)
    model.adapt(np.array([[-3.0, -3.0], [3.0, 3.0]], np.float32))
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        jem_tf.SGLD(20, step_size=0.003, temperature=1.0),
        jem_tf.MALA(20, step_size=0.01),
    ],
    ids=["sgld", "mala"],
)
def test_training_reaches_the_likelihood_of_the_true_density(sampler):
    x, y = draw(4000, seed=0)
    model = make_toy_model(sampler=sampler, buffer=jem_tf.ReplayBuffer(1000))
    schedule = keras.optimizers.schedules.CosineDecay(5e-3, 20 * EPOCHS, alpha=0.05)
    model.compile(keras.optimizers.Adam(schedule))
    held_out, labels = draw(4000, seed=1)
    before = exact_log_density(model, held_out).mean()
    model.fit(x, y, batch_size=200, epochs=EPOCHS, verbose=0)
    after = exact_log_density(model, held_out).mean()
    by_class = class_log_densities(held_out)
    truth = (logsumexp(by_class, axis=0) - np.log(2)).mean()
    assert after > before + 0.5
    assert truth - 0.15 < after < truth + 0.05  # no model exceeds the truth, except by chance
    accuracy = (model.predict(held_out, verbose=0).argmax(1) == labels).mean()
    bayes = (by_class.argmax(0) == labels).mean()
    assert accuracy > bayes - 0.01


def test_the_update_follows_the_gradient_of_the_exact_likelihood():
    """One SGD step on unlabelled data, against the gradient of log p(x) by enumeration."""
    x, _ = draw(4000, seed=0)
    model = make_toy_model(
        sampler=jem_tf.MALA(400, step_size=0.02),
        buffer=jem_tf.ReplayBuffer(4000, reinit_probability=0.0),
        objective=jem_tf.objectives.Joint(weight=1.0, lag=1e9),
    )
    with tf.GradientTape() as tape:
        f = log_density(model.backbone(GRID))
        log_z = tf.reduce_logsumexp(f) + np.log(CELL)
        likelihood = tf.reduce_mean(log_density(model.backbone(x))) - log_z
    exact = flatten(tape.gradient(likelihood, model.trainable_weights))
    before = flatten(model.get_weights())
    model.compile(keras.optimizers.SGD(1e-3))
    model.optimizer.build(model.trainable_variables)
    model.fit(x, np.full(len(x), -1), batch_size=4000, epochs=1, verbose=0)
    change = flatten(model.get_weights()) - before
    cosine = change @ exact / np.linalg.norm(change) / np.linalg.norm(exact)
    assert cosine > 0.9
    np.testing.assert_allclose(np.linalg.norm(change), 1e-3 * np.linalg.norm(exact), rtol=0.15)


def flatten(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])
