"""A Keras model, its export and an endpoint of it give the same numbers."""

import numpy as np
import pytest
import tensorflow as tf

from jem_tf import evaluation


@pytest.fixture(scope="session", params=["model", "exported", "endpoint"])
def subject(request, model, exported, address):
    if request.param == "model":
        return evaluation.of(model, "blobs")
    return evaluation.open_subject(exported if request.param == "exported" else f"{address}/blobs")


def test_all_forms_have_the_scores_of_the_model(subject, model, blobs_data):
    x, _ = blobs_data
    scores = subject.scores(x)
    np.testing.assert_allclose(scores["logits"], model.predict(x, verbose=0), atol=1e-5)
    for kind in ("gradient_norm", "log_density", "max_probability"):
        np.testing.assert_allclose(scores[kind], model.ood_score(x, kind), atol=1e-5)
    assert subject.shape == (2,) and subject.num_classes == 3


def test_all_forms_can_sample(subject):
    assert subject.can_sample
    samples = subject.sample(np.array([0, 1, 2] * 20), seed=0, steps=5)
    assert samples.shape == (60, 2) and np.isfinite(samples).all()


def test_an_export_says_how_many_steps_its_samples_take(exported):
    assert evaluation.open_subject(exported).sample_steps == 5


class Foreign(tf.Module):
    """A SavedModel that was not exported by jem_tf."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="features")])
    def probabilities(self, features):
        return {"probabilities": tf.nn.softmax(features)}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def embedding(self, x):
        return {"embedding": x}


def test_foreign_models_are_measured_as_far_as_their_signatures_allow(tmp_path):
    module = Foreign()
    tf.saved_model.save(module, str(tmp_path / "p"), module.probabilities)
    subject = evaluation.open_subject(tmp_path / "p")
    scores = subject.scores(np.array([[1.0, 0.0]]))
    assert scores["max_probability"] == pytest.approx(np.e / (1 + np.e))
    assert subject.score_kinds == ("max_probability",) and len(subject.limitations) == 3
    tf.saved_model.save(module, str(tmp_path / "e"), {"embed": module.embedding})
    with pytest.raises(ValueError, match=r"no signature that returns `logits`.*embed"):
        evaluation.open_subject(tmp_path / "e")


def test_exports_of_keras_can_be_measured(model, blobs_data, tmp_path):
    x, _ = blobs_data
    model.backbone.export(tmp_path / "plain", verbose=False)
    subject = evaluation.open_subject(tmp_path / "plain")
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(subject.scores(x)["logits"], expected, atol=1e-5)
    assert subject.score_kinds == ("log_density", "max_probability")


@pytest.mark.parametrize(
    ("suffix", "error", "message"),
    [
        ("/elsewhere", OSError, "NOT_FOUND: Servable not found: elsewhere"),
        ("/blobs/7", OSError, "NOT_FOUND"),
        ("/blobs/new", ValueError, "must be a number"),
        ("", ValueError, "must be grpc://host:port/model"),
    ],
)
def test_wrong_endpoints_raise_errors_with_their_address(suffix, error, message, address):
    with pytest.raises(error, match=message):
        evaluation.open_subject(address + suffix)


def test_an_endpoint_without_a_server_raises_an_error_with_its_address():
    with pytest.raises(OSError, match=r"grpc://127\.0\.0\.1:1/m answers UNAVAILABLE"):
        evaluation.open_subject("grpc://127.0.0.1:1/m")
