"""Signatures of SavedModels of TensorFlow 1 and 2, and the shapes that they accept."""

import numpy as np
import pytest
import tensorflow as tf

from jem_tf.server.configuration import Batching
from jem_tf.server.errors import RequestError
from jem_tf.server.servable import Servable

from .grpc_requests import ones

v1 = tf.compat.v1


def write_v1(path, reference_variables):
    """Write half_plus_two as TF Serving's tests have it: a TensorFlow 1 model with a table."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 1], name="x")
        word = v1.placeholder(tf.string, [], name="word")
        a = v1.Variable(0.5, use_resource=not reference_variables)
        initializer = tf.lookup.KeyValueTensorInitializer(["one", "two"], np.int64([1, 2]))
        table = tf.lookup.StaticHashTable(initializer, -1)
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, table._initialize())
        y = a * x + 2.0
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        info = v1.saved_model.build_tensor_info
        build = v1.saved_model.build_signature_def
        signatures = {
            "serving_default": build({"x": info(x)}, {"y": info(y)}, "tensorflow/serving/predict"),
            "look_up": build(
                {"word": info(word)},
                {"number": info(table.lookup(word)), "same": info(tf.identity(word))},
                "tensorflow/serving/predict",
            ),
        }
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(
            session, ["serve"], signatures, main_op=v1.tables_initializer()
        )
        builder.save()


def write_v2(path):
    module = tf.Module()
    module.a = tf.Variable(0.5)

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, name="x")])
    def half_plus_two(x):
        return {"y": module.a * x + 2.0}

    module.call = half_plus_two
    tf.saved_model.save(module, str(path), signatures=half_plus_two)


WRITERS = {
    "reference variables": lambda path: write_v1(path, True),
    "resource variables": lambda path: write_v1(path, False),
    "TensorFlow 2": write_v2,
}


@pytest.fixture(scope="module", params=WRITERS)
def half_plus_two(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("half") / "1"
    WRITERS[request.param](path)
    return path


@pytest.mark.parametrize("batching", [None, Batching()], ids=["plain", "batching"])
def test_elementwise_operations_take_any_shape(batching, half_plus_two):
    """TF Serving's quick start sends `[3]` to a model that declares `[-1, 1]`."""
    servable = Servable("m", 1, half_plus_two, batching)
    for x in ([1.0, 2.0, 5.0], [[1.0], [2.0]], 3.0, [[1.0, 2.0]], np.zeros((0, 1))):
        x = np.float32(x)
        y = servable.run("", {"x": x})["y"]
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, x / 2 + 2)
    servable.close()


@pytest.mark.parametrize("kind", ["reference variables", "resource variables"])
def test_tables_and_scalar_strings_of_tensorflow_1(kind, tmp_path):
    WRITERS[kind](tmp_path / "1")
    servable = Servable("m", 1, tmp_path / "1")
    results = servable.run("look_up", {"word": np.array(b"two", object)})
    assert results["number"] == 2 and results["number"].shape == ()
    assert results["same"].shape == () and results["same"].item() == b"two"
    assert results["same"].dtype == object
    servable.close()


@pytest.mark.parametrize("batching", [None, Batching()], ids=["plain", "batching"])
def test_other_operations_get_declared_shapes_only(batching, rules):
    servable = Servable("rules", 1, rules / "1", batching)
    for x in (ones(2), ones(1, 3), ones(1, 2, 1), np.float32(1)):
        with pytest.raises(RequestError, match=r"`x` must have the shape \(None, 2\)") as caught:
            servable.run("", {"x": x})
        assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(RequestError, match="type float32, got float64"):
        servable.run("", {"x": np.ones((1, 2))})
    with pytest.raises(RequestError, match=r"^assertion failed: \[x is negative\]"):
        servable.run("picky", {"x": -ones(1)})


@pytest.mark.parametrize("kind", ["TensorFlow 1", "TensorFlow 2"])
def test_a_convolution_of_another_rank_does_not_end_the_process(kind, tmp_path):
    """Fused kernels abort when their input has two dimensions and not four."""
    kernel = np.ones((3, 3, 1, 4), np.float32)
    run = lambda x: tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME") + tf.ones([4]))  # noqa: E731
    if kind == "TensorFlow 1":
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, [None, 4, 4, 1], name="x")
            v1.saved_model.simple_save(session, str(tmp_path / "1"), {"x": x}, {"y": run(x)})
    else:
        module, spec = tf.Module(), tf.TensorSpec([None, 4, 4, 1], tf.float32, name="x")
        module.call = tf.function(lambda x: {"y": run(x)}, input_signature=[spec])
        tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.call)
    servable = Servable("m", 1, tmp_path / "1")
    assert servable.run("", {"x": ones(1, 4, 4, 1)})["y"].shape == (1, 4, 4, 4)
    with pytest.raises(RequestError, match="must have the shape"):
        servable.run("", {"x": ones(1, 3)})
