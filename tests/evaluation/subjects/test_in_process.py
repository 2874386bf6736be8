"""Keras models as subjects, whatever they end in."""

import keras
import numpy as np
import pytest
from scipy.special import logsumexp

from jem_tf import evaluation


@pytest.mark.parametrize("ending", ["logits", "softmax", "log_softmax"])
def test_any_keras_classifier_can_be_measured(ending, model, blobs_data):
    x, _ = blobs_data
    plain = keras.models.clone_model(model.backbone)
    logits = plain.predict(x, verbose=0)
    if ending != "logits":
        plain = keras.Sequential([plain, keras.layers.Activation(ending)])
    subject = evaluation.of(plain)
    scores = subject.scores(x)
    p = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    np.testing.assert_allclose(scores["max_probability"], p.max(1), rtol=1e-4)
    assert ("gradient_norm" in scores) == (ending == "logits")
    assert bool(subject.limitations) == (ending != "logits")
    assert not subject.can_sample


class Subclassed(keras.Model):
    """A classifier with an attribute `backbone`, as a JEM has."""

    def __init__(self, classes=3):
        super().__init__()
        self.backbone = keras.layers.Dense(7)
        self.head = keras.layers.Dense(classes)

    def call(self, x):
        return self.head(self.backbone(x))


def test_a_plain_model_with_a_backbone_is_not_taken_for_a_jem():
    inputs = keras.Input((2,))
    wrapped = keras.Model(inputs, Subclassed()(inputs))
    wrapped.backbone = "another"
    subject = evaluation.of(wrapped)
    assert subject.num_classes == 3 and subject.jem is None


def test_models_that_cannot_be_measured_raise_an_error_with_the_reason():
    with pytest.raises(ValueError, match="known size"):
        evaluation.of(Subclassed(), "mine")
    sigmoid = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, "sigmoid")])
    with pytest.raises(ValueError, match="remove the sigmoid"):
        evaluation.of(sigmoid)
    one_class = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=r"at least two classes\. Received: .*\(8, 1\)"):
        evaluation.of(one_class)
