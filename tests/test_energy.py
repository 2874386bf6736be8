"""Identities of the maths, and derivatives against finite differences."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax, logsumexp

from jem_tf import energy as e


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32) * 3


@pytest.fixture
def network():
    """A smooth network in float64, so that finite differences are good to 1e-6."""
    layers = [
        keras.layers.Dense(8, "tanh", dtype="float64"),
        keras.layers.Dense(3, dtype="float64"),
    ]
    model = keras.Sequential([keras.Input((4,), dtype="float64"), *layers])
    return lambda x: model(x)


def test_energies_agree_with_scipy(logits):
    np.testing.assert_allclose(e.energy(logits), -logsumexp(logits, axis=1), rtol=1e-6)
    np.testing.assert_allclose(e.log_density(logits), logsumexp(logits, axis=1), rtol=1e-6)
    expected = log_softmax(logits, axis=1)
    np.testing.assert_allclose(e.conditional_log_probability(logits), expected, atol=1e-6)


def test_joint_energy_of_labels_picks_from_that_of_all_classes(logits):
    y = np.array([0, 3, 1, 2, 3])
    np.testing.assert_allclose(e.joint_energy(logits, y), -logits[np.arange(5), y])
    np.testing.assert_allclose(e.joint_energy(logits), -logits)


def test_joint_is_conditional_times_marginal(logits):
    """-E(x, y) = log p(y | x) - E(x)."""
    total = e.conditional_log_probability(logits) - e.energy(logits)[:, None]
    np.testing.assert_allclose(total, -e.joint_energy(logits), atol=1e-5)


def test_a_shift_of_all_logits_changes_the_energy_and_nothing_else(logits):
    np.testing.assert_allclose(e.energy(logits + 5.0), e.energy(logits) - 5.0, rtol=1e-5)
    shifted = e.conditional_log_probability(logits + 5.0)
    np.testing.assert_allclose(shifted, e.conditional_log_probability(logits), atol=1e-5)


@pytest.mark.parametrize("labels", [None, [0, 2]])
def test_input_score_matches_finite_differences(network, labels):
    x = np.random.default_rng(1).normal(size=(2, 4))

    def value(x):
        logits = network(tf.constant(x)).numpy()
        return logsumexp(logits, axis=1) if labels is None else logits[np.arange(2), labels]

    # float32 in `log_density` leaves about 1e-7 / 2e-3: tolerance 1e-3.
    step = 1e-3
    expected = np.stack(
        [(value(x + step * axis) - value(x - step * axis)) / (2 * step) for axis in np.eye(4)], 1
    )
    score = e.input_score(network, tf.constant(x), labels)
    np.testing.assert_allclose(score, expected, atol=1e-3)
    if labels is None:
        norm = e.gradient_norm(network, tf.constant(x))
        np.testing.assert_allclose(norm, np.linalg.norm(expected, axis=1), atol=1e-3)


def test_gradient_norm_is_measured_in_the_given_units(network):
    """Changing the units of an input feature changes its scale, and not the norm."""
    x = tf.constant(np.random.default_rng(1).normal(size=(3, 4)))
    unit = tf.constant([1.0, 10.0, 0.1, 5.0], tf.float64)
    rescaled = e.gradient_norm(lambda z: network(z / unit), x * unit, scale=unit)
    np.testing.assert_allclose(rescaled, e.gradient_norm(network, x), rtol=1e-5)


def test_ood_scores_are_what_they_say(network):
    x = tf.constant(np.random.default_rng(1).normal(size=(3, 4)))
    logits = network(x).numpy()
    norm = e.gradient_norm(network, x)
    np.testing.assert_allclose(e.ood_score(network, x, "gradient_norm"), -norm)
    density = e.ood_score(network, x, "log_density")
    np.testing.assert_allclose(density, logsumexp(logits, axis=1), rtol=1e-5)
    confidence = e.ood_score(network, x, "max_probability")
    np.testing.assert_allclose(confidence, np.exp(log_softmax(logits, 1)).max(1), rtol=1e-5)


def test_unknown_score_is_named(network):
    with pytest.raises(ValueError, match="kind='entropy'"):
        e.ood_score(network, tf.zeros([1, 4]), "entropy")
