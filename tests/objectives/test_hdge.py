"""HDGE: the bound by enumeration, its gradient, and the queue of earlier logits."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp, softmax

from jem_tf.objectives import HDGE, CrossEntropy
from jem_tf.objectives.hdge import level

from .toy import batch_of, check_by_differences, draw_data, make_toy_model, value_and_gradient


def test_the_bound_enumerates_the_batch_and_the_queue():
    """If these points were the only ones, the bound would be log p(x | y) itself."""
    model = make_toy_model(objective=HDGE(queue=100))
    x, y = draw_data()
    batch = batch_of(model, x[:30], np.where(np.arange(30) % 5, y[:30], -1))
    f, queue = model.predict(x[:30], verbose=0), model.predict(x[30:], verbose=0)
    both = np.concatenate([f, queue])
    conditional = -np.log(softmax(both, axis=0)[np.arange(30), y[:30]])
    marginal = -np.log(softmax(logsumexp(both, axis=1))[:30])
    expected = np.where(np.arange(30) % 5, conditional, marginal)
    stored = tf.constant(queue - logsumexp(f, axis=0) + np.float32(np.log(30)))
    bound = model.objective.bound(tf.constant(f), stored, batch)
    np.testing.assert_allclose(bound, expected, rtol=1e-4)
    loss = lambda: model.objective.loss(model, batch, batch.x, stored).loss  # noqa: E731
    value, gradient = value_and_gradient(model, loss)
    plain, _ = value_and_gradient(
        model, lambda: CrossEntropy().loss(model, batch, batch.x, None).loss
    )
    assert value == pytest.approx(plain + expected.mean(), rel=1e-5)
    check_by_differences(model, loss, gradient)


def test_the_gradient_lowers_logits_as_much_as_it_raises_them():
    """With a queue that has no gradient it would not, and logits would grow without bound. If the
    queue holds the batch itself, the gradient is that of the batch alone."""
    model = make_toy_model(objective=HDGE(queue=100))
    x, y = draw_data()
    f = tf.constant(model.predict(x[:30], verbose=0))
    batch = batch_of(model, x[:30], y[:30])
    gradients = []
    for stored in (f - level(f), f[:0]):
        with tf.GradientTape() as tape:
            tape.watch(f)
            bound = tf.reduce_sum(model.objective.bound(f, stored, batch))
        gradients.append(tape.gradient(bound, f))
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-5)
    np.testing.assert_allclose(tf.reduce_sum(gradients[0], axis=0), 0.0, atol=1e-4)
    assert np.abs(gradients[0]).max() > 0.5


def test_the_queue_holds_the_newest_logits():
    model = make_toy_model(objective=HDGE(queue=70))
    model.compile("sgd", run_eagerly=True)
    model.fit(*draw_data(), batch_size=60, verbose=0)
    queue = model.objective.arrays()["queue"][0]
    assert (queue[:60] > -1e8).all() and (queue[60:] == -1e9).all()
    model.fit(*draw_data(), batch_size=60, verbose=0)
    assert (model.objective.arrays()["queue"][0] > -1e8).all()
    assert model.objective.arrays()["place"][0] == 120 % 70


def test_a_queue_smaller_than_a_batch_raises(make_model, blobs):
    with pytest.raises(ValueError, match=r"100 or more. Received: queue=20"):
        make_model(objective=HDGE(queue=20)).fit(*blobs, batch_size=100, verbose=0)
