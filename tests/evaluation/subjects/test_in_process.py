"""Keras models as subjects, whatever they end in."""

import keras
import numpy as np
import pytest
from scipy.special import logsumexp

import jem_tf
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


def test_the_verdict_of_a_plain_classifier_does_not_depend_on_the_unit_of_its_inputs():
    """Its statistics are fitted and read in the same unit: that of an export."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 255, (400, 4)).astype(np.float32), np.arange(400) % 3
    layers = [keras.layers.Rescaling(1 / 127.5, -1.0), keras.layers.Dense(8, activation="silu")]
    plain = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(3)])
    subject = evaluation.of(plain)
    subject.fit_detector(x, y, (x, y))
    model = jem_tf.JEM(plain, objective="cross_entropy")
    model.adapt(x)
    model.fit_detector(x, y, reference=(x, y))
    scores = subject.scores(x[:50])
    for name, values in zip(model.detector.names, model.statistics(x[:50]).T):
        if name == "max_probability":  # shown as a probability
            continue
        np.testing.assert_allclose(scores[name], values, rtol=1e-3, atol=1e-4, err_msg=name)
    np.testing.assert_allclose(scores["fused"], model.ood_score(x[:50]), rtol=1e-3, atol=1e-3)


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


def head(units):
    return keras.Sequential([keras.Input((units,)), keras.layers.Dense(3)])


@pytest.mark.parametrize("dtype", ["string", "int32"])
def test_text_and_token_ids_reach_the_encoder_of_a_model(dtype):
    if dtype == "string":
        words = keras.layers.TextVectorization(output_mode="multi_hot", vocabulary=["sun", "sea"])
        encoder = keras.Sequential([keras.Input((), dtype=dtype), words])
        x = np.array(["sun", "sea sun", "?"])
    else:
        layers = [keras.layers.Embedding(9, 2), keras.layers.Flatten()]
        encoder = keras.Sequential([keras.Input((3,), dtype=dtype), *layers])
        x = np.arange(9).reshape(3, 3)
    model = jem_tf.JEM(head(encoder.output_shape[1]), encoder=encoder)
    model.adapt(x)
    subject = evaluation.of(model)
    np.testing.assert_allclose(subject.scores(x)["log_density"], -model.energy(x), rtol=1e-5)
    assert subject.predict_logits(x).shape == (3, 3)
    unsized = keras.Sequential([keras.Input((None, 2)), keras.layers.GlobalAveragePooling1D()])
    with pytest.raises(ValueError, match=r"one size.*\(None, 2\)"):
        evaluation.of(jem_tf.JEM(head(2), encoder=unsized))


def test_models_that_cannot_be_measured_raise_an_error_with_the_reason():
    with pytest.raises(ValueError, match="known size"):
        evaluation.of(Subclassed(), "mine")
    sigmoid = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, "sigmoid")])
    with pytest.raises(ValueError, match="remove the sigmoid"):
        evaluation.of(sigmoid)
    layers = [keras.layers.Embedding(9, 2), keras.layers.Flatten(), keras.layers.Dense(2)]
    with pytest.raises(ValueError, match=r"real numbers.*int32.*encoder=encoder"):
        evaluation.of(keras.Sequential([keras.Input((3,), dtype="int32"), *layers]))
    one_class = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match=r"at least two classes\. Received: .*\(8, 1\)"):
        evaluation.of(one_class)
