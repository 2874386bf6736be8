"""Robust cross-entropy: worst points of a linear classifier in closed form, and those of JEM."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

import jem_tf
from jem_tf.objectives import Joint
from jem_tf.objectives.adversarial import worst_points

from .toy import batch_of, draw_data, make_toy_model

SEEDS = [tf.constant([1, 2]), tf.constant([3, 4])]


def linear_model(**options):
    """f(x) = (w x, 0), on five features with other ranges."""
    network = keras.Sequential([keras.Input((5,)), keras.layers.Dense(2, use_bias=False)])
    w = np.asarray([1.0, -2.0, 0.5, 3.0, 0.25], np.float32)
    network.layers[0].set_weights([np.stack([w, 0 * w], 1)])
    model = jem_tf.JEM(network, seed=0, **options)
    x = np.random.default_rng(0).uniform(-1, 1, (40, 5)).astype(np.float32) * [1, 2, 3, 4, 5]
    model.adapt(x)
    return model, x.astype(np.float32), w


@pytest.mark.parametrize("steps", [1, 3])
def test_the_worst_point_of_a_linear_classifier_is_against_its_weights(steps):
    """In half ranges s, f is (s w) u: the worst change of u is along s w, sqrt(5) radius long."""
    model, x, w = linear_model()
    y = np.arange(40) % 2
    scale = np.ravel(model.input_range.scale)
    uphill = scale * w / np.linalg.norm(scale * w)
    away = np.where(y == 0, -1, 1)[:, None] * 0.1 * np.sqrt(5) * uphill * scale
    points = worst_points(model, tf.constant(x), tf.one_hot(y, 2), radius=0.1, steps=steps)
    np.testing.assert_allclose(points, x + away, rtol=1e-4, atol=1e-5)


def test_rows_without_a_label_and_a_radius_of_zero_change_nothing():
    model, x, _ = linear_model()
    labels = tf.one_hot(np.full(40, -1), 2)
    np.testing.assert_allclose(worst_points(model, tf.constant(x), labels, 0.1, 2), x, rtol=1e-6)
    assert worst_points(model, x, labels, 0.0, 2) is x


def make(objective):
    """A toy model that can take a training step, and its batch."""
    model = make_toy_model(objective=objective, sampler=jem_tf.SGLD(2), start=jem_tf.Uniform())
    x, y = draw_data()
    model.adapt(x)
    model.buffer.initialise(model.start, SEEDS[0], 60, 1, np.ones(3) / 3)
    return model, batch_of(model, x, y), y


def test_cross_entropy_is_that_of_the_worst_points_and_the_density_that_of_the_data():
    model, batch, y = make(Joint(weight=0.3, lag=1e9, radius=0.1, attack_steps=2))
    negatives = model.objective.negatives(model, batch, SEEDS)
    terms = model.objective.loss(model, batch, negatives)
    points = worst_points(model, batch.x, batch.targets, 0.1, 2)
    worst, clean, samples = (
        model.predict(np.asarray(x), verbose=0) for x in (points, batch.x, negatives.x)
    )
    robust = (logsumexp(worst, axis=1) - worst[np.arange(60), y]).mean()
    assert robust > (logsumexp(clean, axis=1) - clean[np.arange(60), y]).mean() + 0.01
    gap = logsumexp(samples, axis=1).mean() - logsumexp(clean, axis=1).mean()
    assert float(terms.loss) == pytest.approx(robust + 0.3 * gap, rel=1e-4)
    np.testing.assert_allclose(terms.logits, worst, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"radius": -0.1}, {"attack_steps": 0}])
def test_wrong_settings_are_quoted(options):
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        Joint(**options)
