"""JEM's generative gradient is that of a discriminator between data and samples, at p = q."""

import numpy as np
import pytest
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.objectives import CrossEntropy, Joint
from jem_tf.objectives.nce import logistic_losses
from jem_tf.objectives.sampled import Samples
from jem_tf.sampling.replay import Draw

from .toy import GRID, batch_of, draw_data, make_toy_model, quantiles, value_and_gradient


@pytest.fixture
def setting():
    """A model, data, and samples of the model: quantiles of its density."""
    model = make_toy_model(objective=Joint(weight=1.0, lag=1e6))  # all samples are trusted
    x, y = draw_data()
    x += 1.0  # so that the model is not that of the data
    samples = quantiles(maths.log_density(model.logits(tf.constant(GRID))).numpy(), 60)
    return model, batch_of(model, x, y), tf.constant(samples)


def gradient_of_jem(model, batch, samples):
    """The gradient of the loss of `Joint` without that of cross-entropy."""
    slots = Draw(samples, tf.range(60), tf.zeros([60]), None)
    negatives = Samples(samples, slots, {})
    both = [
        value_and_gradient(model, lambda o=o: o.loss(model, batch, negatives).loss)[1]
        for o in (model.objective, CrossEntropy())
    ]
    return both[0] - both[1]


def gradient_of_discriminator(model, batch, samples, log_q):
    """The gradient of the logistic loss with the logit log p - log q, q held constant."""
    x = tf.concat([batch.x, samples], axis=0)

    def loss():
        scores = maths.log_density(model.logits(x)) - log_q
        return 2.0 * tf.reduce_mean(logistic_losses(scores, 60))

    return value_and_gradient(model, loss)[1]


def test_the_gradient_is_half_of_jem_where_q_is_p(setting):
    """Both logits are 0 there, and the slope of a logistic loss at 0 is 1/2."""
    model, batch, samples = setting
    log_q = maths.log_density(model.logits(tf.concat([batch.x, samples], axis=0)))
    ours = gradient_of_jem(model, batch, samples)
    assert np.linalg.norm(ours) > 0.1
    discriminator = gradient_of_discriminator(model, batch, samples, log_q)
    np.testing.assert_allclose(discriminator, ours / 2, atol=1e-5)  # rounding


def test_log_z_has_no_effect_where_q_is_p(setting):
    """Its gradients at data and at samples cancel."""
    model, batch, samples = setting
    x = tf.concat([batch.x, samples], axis=0)
    log_z = lambda: tf.reduce_logsumexp(maths.log_density(model.logits(tf.constant(GRID))))  # noqa: E731
    log_q = maths.log_density(model.logits(x)) - log_z()

    def loss():
        scores = maths.log_density(model.logits(x)) - log_z() - log_q
        return 2.0 * tf.reduce_mean(logistic_losses(scores, 60))

    normalised = value_and_gradient(model, loss)[1]
    np.testing.assert_allclose(normalised, gradient_of_jem(model, batch, samples) / 2, atol=1e-4)


def test_the_gradients_differ_where_q_is_not_p(setting):
    model, batch, samples = setting
    log_q = tf.concat([batch.x, samples], axis=0)[:, 0] * 2.0
    ours = gradient_of_jem(model, batch, samples)
    other = gradient_of_discriminator(model, batch, samples, log_q)
    assert np.linalg.norm(other - ours / 2) > 0.3 * np.linalg.norm(ours)
