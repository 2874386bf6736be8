"""What can be evaluated: the same numbers from a Keras model, its export and an endpoint."""

import subprocess
import sys
import threading
from concurrent import futures

import grpc
import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

import jem_tf
from jem_tf import evaluation


class Serving(prediction_service_pb2_grpc.PredictionServiceServicer):
    """TF Serving's protocol, as little of it as evaluation speaks."""

    def __init__(self, path):
        self.path = str(path)
        self.signatures = tf.saved_model.load(self.path).signatures
        self.lock = threading.Lock()

    def GetModelMetadata(self, request, context):
        self.check(request.model_spec, context)
        from tensorflow.python.tools import saved_model_utils

        graph = saved_model_utils.get_meta_graph_def(self.path, "serve")
        found = get_model_metadata_pb2.SignatureDefMap(signature_def=graph.signature_def)
        answer = get_model_metadata_pb2.GetModelMetadataResponse()
        answer.metadata["signature_def"].Pack(found)
        return answer

    def Predict(self, request, context):
        self.check(request.model_spec, context)
        function = self.signatures[request.model_spec.signature_name]
        inputs = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        answer = predict_pb2.PredictResponse()
        with self.lock:
            for key, value in function(**inputs).items():
                answer.outputs[key].CopyFrom(tf.make_tensor_proto(value))
        return answer

    def check(self, spec, context):
        if spec.name != "blobs" or spec.version.value not in (0, 1):
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found: {spec.name}")


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = (rng.normal(size=(90, 2)) + 3 * y[:, None]).astype(np.float32)
    layers = [keras.Input((2,)), keras.layers.Dense(8, activation="silu"), keras.layers.Dense(3)]
    model = jem_tf.JEM(keras.Sequential(layers), sampler=jem_tf.SGLD(2), seed=0)
    model.compile("adam")
    model.fit(x, y, epochs=2, verbose=0)
    model.data = (x, y)
    return model


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    place = tmp_path_factory.mktemp("models") / "blobs"
    return jem_tf.export(model, place, calibrate=model.data, sample_steps=5).parent


@pytest.fixture(scope="module")
def address(exported):
    server = grpc.server(futures.ThreadPoolExecutor(2))
    servicer = Serving(exported / "1")
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"grpc://127.0.0.1:{port}"
    server.stop(None)


@pytest.fixture(params=["model", "exported", "endpoint"])
def subject(request, model, exported, address):
    if request.param == "model":
        return evaluation.of(model, "blobs")
    return evaluation.open_subject(exported if request.param == "exported" else f"{address}/blobs")


def test_all_kinds_give_the_models_numbers(subject, model):
    x, _ = model.data
    found = subject.scores(x)
    np.testing.assert_allclose(found["logits"], model.predict(x, verbose=0), atol=1e-5)
    for kind in ("gradient_norm", "log_density", "max_probability"):
        np.testing.assert_allclose(found[kind], model.ood_score(x, kind), atol=1e-5)
    assert subject.shape == (2,) and subject.num_classes == 3


def test_all_kinds_sample(subject):
    assert subject.samples
    drawn = subject.sample(np.array([0, 1, 2] * 20), seed=0, steps=5)
    assert drawn.shape == (60, 2) and np.isfinite(drawn).all()


def test_streams_and_arrays_give_the_same(model):
    x, y = model.data
    subject = evaluation.of(model)
    stream = tf.data.Dataset.from_tensor_slices((x, y)).batch(7)
    found = subject.scores(stream, labelled=True)
    np.testing.assert_array_equal(found["y"], y)
    expected = subject.scores(x)["gradient_norm"]
    np.testing.assert_allclose(found["gradient_norm"], expected, atol=1e-5)


@pytest.mark.parametrize("ending", ["logits", "softmax", "log_softmax"])
def test_any_keras_classifier_can_be_measured(ending, model):
    x, _ = model.data
    plain = keras.models.clone_model(model.backbone)
    logits = plain.predict(x, verbose=0)
    if ending != "logits":
        plain = keras.Sequential([plain, keras.layers.Activation(ending)])
    subject = evaluation.of(plain)
    found = subject.scores(x)
    p = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    np.testing.assert_allclose(found["max_probability"], p.max(1), rtol=1e-4)
    assert ("gradient_norm" in found) == (ending == "logits")
    assert bool(subject.lacks) == (ending != "logits")
    assert not subject.samples


class Foreign(tf.Module):
    """Somebody else's SavedModel."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="features")])
    def probabilities(self, features):
        return {"probabilities": tf.nn.softmax(features)}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
    def other(self, x):
        return {"embedding": x}


def test_foreign_models_are_measured_as_far_as_they_go(tmp_path):
    module = Foreign()
    tf.saved_model.save(module, str(tmp_path / "p"), module.probabilities)
    subject = evaluation.open_subject(tmp_path / "p")
    found = subject.scores(np.array([[1.0, 0.0]]))
    assert found["max_probability"] == pytest.approx(np.e / (1 + np.e))
    assert subject.kinds == ("max_probability",) and len(subject.lacks) == 3
    tf.saved_model.save(module, str(tmp_path / "o"), {"embed": module.other})
    with pytest.raises(ValueError, match=r"no signature that gives `logits`.*embed"):
        evaluation.open_subject(tmp_path / "o")


@pytest.mark.parametrize(
    ("suffix", "error", "message"),
    [
        ("/elsewhere", OSError, "NOT_FOUND: Servable not found: elsewhere"),
        ("/blobs/7", OSError, "NOT_FOUND"),
        ("/blobs/new", ValueError, "must be a number"),
        ("", ValueError, "must be grpc://host:port/model"),
    ],
)
def test_wrong_endpoints_are_named(suffix, error, message, address):
    with pytest.raises(error, match=message):
        evaluation.open_subject(address + suffix)


def test_an_endpoint_that_is_not_there_is_named():
    with pytest.raises(OSError, match=r"grpc://127\.0\.0\.1:1/m answers UNAVAILABLE"):
        evaluation.open_subject("grpc://127.0.0.1:1/m")


def test_wrong_shapes_are_named(model):
    with pytest.raises(ValueError, match=r"\[batch, 2\].*\(5,\)"):
        evaluation.of(model).scores(np.zeros((4, 5)))


MEMORY = """
import resource, keras, tensorflow as tf
from jem_tf import evaluation
layers = [keras.Input((28, 28, 1)), keras.layers.Flatten(), keras.layers.Dense(3)]
subject = evaluation.of(keras.Sequential(layers))
batch = tf.zeros([500, 28, 28, 1])
stream = lambda n: tf.data.Dataset.range(n).map(lambda i: batch + tf.cast(i, tf.float32))
subject.scores(stream(20))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert len(subject.scores(stream(200))["gradient_norm"]) == 100_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_stays_flat_for_many_inputs():
    """100 000 inputs of 3 kB each, 300 MB in all, come and go; in a process of its own, because
    only the peak of a process can be asked for."""
    command = [sys.executable, "-c", MEMORY]
    grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(grown) < 50_000  # kB; the scores themselves are 3 MB


class Subclassed(keras.Model):
    def __init__(self, classes=3):
        super().__init__()
        self.backbone = keras.layers.Dense(7)
        self.head = keras.layers.Dense(classes)

    def call(self, x):
        return self.head(self.backbone(x))


def test_models_that_cannot_be_measured_say_why(model):
    with pytest.raises(ValueError, match="known size"):
        evaluation.of(Subclassed(), "mine")
    inputs = keras.Input((2,))
    wrapped = keras.Model(inputs, Subclassed()(inputs))
    wrapped.backbone = "another"  # a name that JEM uses, too
    assert evaluation.of(wrapped).num_classes == 3
    sigmoid = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, "sigmoid")])
    with pytest.raises(ValueError, match="remove the sigmoid"):
        evaluation.of(sigmoid)
    with pytest.raises(ValueError, match="infinite"):
        stream = tf.data.Dataset.from_tensors(tf.zeros([1, 2])).repeat()
        evaluation.of(model).scores(stream)


def test_keras_own_exports_can_be_measured(model, tmp_path):
    x, _ = model.data
    model.backbone.export(tmp_path / "plain", verbose=False)
    subject = evaluation.open_subject(tmp_path / "plain")
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(subject.scores(x)["logits"], expected, atol=1e-5)
    assert subject.kinds == ("log_density", "max_probability")
