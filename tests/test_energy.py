"""Energies against SciPy and their identities, and derivatives against finite differences."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax, logsumexp

from jem_tf import energy as maths


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32) * 3


@pytest.fixture
def network():
    """A smooth network in float64, so that finite differences are accurate to 1e-6."""
    layers = [
        keras.layers.Dense(8, "tanh", dtype="float64"),
        keras.layers.Dense(3, dtype="float64"),
    ]
    model = keras.Sequential([keras.Input((4,), dtype="float64"), *layers])
    return lambda x: model(x)


def test_energies_agree_with_scipy(logits):
    np.testing.assert_allclose(maths.energy(logits), -logsumexp(logits, axis=1), rtol=1e-6)
    np.testing.assert_allclose(maths.log_density(logits), logsumexp(logits, axis=1), rtol=1e-6)
    expected = log_softmax(logits, axis=1)
    np.testing.assert_allclose(maths.conditional_log_probability(logits), expected, atol=1e-6)


def test_the_joint_energy_of_labels_is_that_of_their_classes(logits):
    y = np.array([0, 3, 1, 2, 3])
    np.testing.assert_allclose(maths.joint_energy(logits, y), -logits[np.arange(5), y])
    np.testing.assert_allclose(maths.joint_energy(logits), -logits)


def test_joint_is_conditional_times_marginal(logits):
    """-E(x, y) = log p(y | x) - E(x)."""
    total = maths.conditional_log_probability(logits) - maths.energy(logits)[:, None]
    np.testing.assert_allclose(total, -maths.joint_energy(logits), atol=1e-5)


def test_a_shift_of_all_logits_changes_the_energy_only(logits):
    np.testing.assert_allclose(maths.energy(logits + 5.0), maths.energy(logits) - 5.0, rtol=1e-5)
    shifted = maths.conditional_log_probability(logits + 5.0)
    np.testing.assert_allclose(shifted, maths.conditional_log_probability(logits), atol=1e-5)


@pytest.mark.parametrize("labels", [None, [0, 2]])
def test_the_score_is_that_of_finite_differences(network, labels):
    x = np.random.default_rng(1).normal(size=(2, 4))

    def value(x):
        logits = network(tf.constant(x)).numpy()
        return logsumexp(logits, axis=1) if labels is None else logits[np.arange(2), labels]

    # float32 in `log_density` leaves about 1e-7 / 2e-3: tolerance 1e-3.
    step = 1e-3
    expected = np.stack(
        [(value(x + step * axis) - value(x - step * axis)) / (2 * step) for axis in np.eye(4)], 1
    )
    score = maths.input_score(network, tf.constant(x), labels)
    np.testing.assert_allclose(score, expected, atol=1e-3)
    if labels is None:
        norm = maths.gradient_norm(network, tf.constant(x))
        np.testing.assert_allclose(norm, np.linalg.norm(expected, axis=1), atol=1e-3)


def test_the_gradient_norm_is_in_units_of_the_scale(network):
    """Changing the units of an input feature changes its scale, and not the norm."""
    x = tf.constant(np.random.default_rng(1).normal(size=(3, 4)))
    unit = tf.constant([1.0, 10.0, 0.1, 5.0], tf.float64)
    rescaled = maths.gradient_norm(lambda z: network(z / unit), x * unit, scale=unit)
    np.testing.assert_allclose(rescaled, maths.gradient_norm(network, x), rtol=1e-5)


def test_ood_scores_are_those_of_the_logits_and_the_gradient(network):
    x = tf.constant(np.random.default_rng(1).normal(size=(3, 4)))
    logits = network(x).numpy()
    norm = maths.gradient_norm(network, x)
    np.testing.assert_allclose(maths.ood_score(network, x, "gradient_norm"), -norm)
    density = maths.ood_score(network, x, "log_density")
    np.testing.assert_allclose(density, logsumexp(logits, axis=1), rtol=1e-5)
    confidence = maths.ood_score(network, x, "max_probability")
    np.testing.assert_allclose(confidence, np.exp(log_softmax(logits, 1)).max(1), rtol=1e-5)


def test_errors_quote_unknown_scores(network):
    with pytest.raises(ValueError, match="kind='entropy'"):
        maths.ood_score(network, tf.zeros([1, 4]), "entropy")
