"""Heads that begin with a trained classifier: its probabilities, a flat density, its training."""

import keras
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from jem_tf.backbones import classifier_head


@pytest.fixture(scope="module")
def head():
    """A head for a linear classifier of 5 features, its inputs, and the classifier's logits."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5)).astype(np.float32)
    logits = (x @ rng.normal(size=(5, 3)) * 4 + [1.0, 0.0, -1.0]).astype(np.float32)
    return classifier_head(x, logits, units=32), x, logits


def test_a_head_begins_with_the_probabilities_of_the_classifier(head):
    """Those of half its logits, exactly: least squares of a linear function. The dense layers
    are random at first and change few predictions."""
    network, x, logits = head
    linear = keras.Model(network.inputs[0], network.get_layer("classifier").output)
    expected = softmax(0.5 * logits, axis=1)
    np.testing.assert_allclose(np.exp(linear.predict(x, verbose=0)), expected, atol=1e-4)
    predicted = network.predict(x, verbose=0).argmax(1)
    assert (predicted == logits.argmax(1)).mean() > 0.9


def test_its_density_begins_nearly_flat(head):
    """The classifier's own log-sum-exp varies by nats, that of the head by those of random dense
    layers."""
    network, x, logits = head
    assert logsumexp(logits, axis=1).std() > 2.0
    assert logsumexp(network.predict(x, verbose=0), axis=1).std() < 0.3


def test_only_the_dense_layers_are_trained(head):
    network, *_ = head
    assert len(network.non_trainable_weights) == 2
    assert len(network.trainable_weights) == 8
    copy = keras.models.clone_model(network)
    assert not copy.get_layer("classifier").trainable


def test_errors_name_the_shapes():
    with pytest.raises(ValueError, match=r"\(4, 2\) and \(3, 2\)"):
        classifier_head(np.zeros((4, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="scale=0"):
        classifier_head(np.zeros((4, 2)), np.zeros((4, 2)), scale=0)
