"""The model of TF Serving's own tests, and what they ask it.

Follows model_servers/tensorflow_model_server_test.py and its model half_plus_two, version 123: a
SavedModel of TensorFlow 1 with reference variables, served here with and without batching.
"""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_status_pb2,
    inference_pb2,
    regression_pb2,
)

from .grpc_requests import predict_request

v1 = tf.compat.v1
BASE = "/v1/models/default"


def write(base):
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], name="tf_example")
        feature = {"x": v1.FixedLenFeature([1], tf.float32)}
        x = tf.identity(v1.parse_example(examples, feature)["x"], name="x")
        a, b = (v1.Variable(value, use_resource=False) for value in (0.5, 2.0))
        y = a * x + b
        session.run(v1.global_variables_initializer())
        info, build = v1.saved_model.build_tensor_info, v1.saved_model.build_signature_def
        method = "tensorflow/serving/{}".format
        signatures = {
            "serving_default": build({"x": info(x)}, {"y": info(y)}, method("predict")),
            "regress_x_to_y": build(
                {"inputs": info(examples)}, {"outputs": info(y)}, method("regress")
            ),
            "classify_x_to_y": build(
                {"inputs": info(examples)}, {"scores": info(y)}, method("classify")
            ),
        }
        builder = v1.saved_model.Builder(f"{base}/123")
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "batching"])
def half(request, shared_servers, tmp_path_factory):
    base = tmp_path_factory.mktemp("half_plus_two")
    write(base)
    return shared_servers(
        model_name="default", model_base_path=str(base), enable_batching=request.param
    )


def fill(request, signature):
    """Ask the signature for the example x = 2, for which the answer is 3."""
    request.model_spec.name, request.model_spec.signature_name = "default", signature
    example = request.input.example_list.examples.add()
    example.features.feature["x"].float_list.value.append(2.0)
    return request


def test_predict(half):
    """testPredictSavedModel sends the shape [1] to a signature that declares [-1, 1]."""
    request = predict_request(name="default", x=np.float32([2.0]))
    for outputs in (["y"], []):
        request.output_filter[:] = outputs
        response = half.predictions.Predict(request)
        assert list(response.outputs["y"].float_val) == [3.0]
        assert response.model_spec.version.value == 123


def test_classify_regress_and_multi_inference(half):
    """testClassify, testRegress and testMultiInference."""
    request = fill(classification_pb2.ClassificationRequest(), "classify_x_to_y")
    (row,) = half.predictions.Classify(request).result.classifications
    assert [c.score for c in row.classes] == [3.0]
    request = fill(regression_pb2.RegressionRequest(), "regress_x_to_y")
    (row,) = half.predictions.Regress(request).result.regressions
    assert row.value == 3.0
    request = inference_pb2.MultiInferenceRequest(input=request.input)
    for verb in ("regress", "classify"):
        task = request.tasks.add(method_name=f"tensorflow/serving/{verb}")
        task.model_spec.name, task.model_spec.signature_name = "default", f"{verb}_x_to_y"
    first, second = half.predictions.MultiInference(request).results
    assert first.regression_result.regressions[0].value == 3.0
    assert second.classification_result.classifications[0].classes[0].score == 3.0


def test_rest(half):
    """testPredictREST, testPredictColumnarREST, testClassifyREST and testRegressREST."""
    numbers = [2.0, 3.0, 4.0]
    post = lambda path, body: half.rest.post(BASE + path, json=body).json()  # noqa: E731
    assert post(":predict", {"instances": numbers}) == {"predictions": [3.0, 3.5, 4.0]}
    assert post(":predict", {"inputs": numbers}) == {"outputs": [3.0, 3.5, 4.0]}
    body = {"signature_name": "classify_x_to_y", "examples": [{"x": 2.0}]}
    assert post(":classify", body) == {"results": [[["", 3.0]]]}
    body = {"signature_name": "regress_x_to_y", "examples": [{"x": 2.0}]}
    assert post(":regress", body) == {"results": [3.0]}


def test_status(half):
    """testGetModelStatus and testGetStatusREST."""
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "default"
    (row,) = half.models.GetModelStatus(request).model_version_status
    assert (row.version, row.status.error_code) == (123, 0)
    (row,) = half.rest.get(BASE).json()["model_version_status"]
    assert (row["version"], row["state"]) == ("123", "AVAILABLE")
