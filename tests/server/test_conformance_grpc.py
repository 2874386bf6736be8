"""gRPC as TF Serving documents it, on the embedded server or on a real TF Serving.

Each test or table names what it follows: a file below tensorflow_serving/ in TF Serving 2.20, or a
proto. Where error messages differ between versions of TF Serving, only the code is compared.
"""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    predict_pb2,
    regression_pb2,
)

from .grpc_requests import ones, predict_request, rpc_error


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_predict(rows, served):
    """model_servers/tensorflow_model_server_test.py, testPredict..."""
    response = served.predictions.Predict(predict_request(x=ones(rows, 2)))
    np.testing.assert_array_equal(tf.make_ndarray(response.outputs["y"]), 3 * ones(rows, 1))
    spec = response.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("rules", 1, "serving_default")


def test_predict_with_a_version_a_filter_and_several_inputs(served):
    """apis/predict.proto and apis/model.proto."""
    request = predict_request("two", version=1, a=ones(2), b=np.array([2, 3]))
    request.output_filter.append("product")
    response = served.predictions.Predict(request)
    assert list(response.outputs) == ["product"]
    assert list(response.outputs["product"].float_val) == [2.0, 3.0]


def test_predict_strings_scalars_and_zero_rows(served):
    """servables/tensorflow/predict_util.cc: any shape, results as proto fields."""
    request = predict_request("echo", s=[b"\xff\x00", b"b"], f=[True, False], i=np.int32([1, 2]))
    outputs = served.predictions.Predict(request).outputs
    assert list(outputs["s"].string_val) == [b"\xff\x00", b"b"]
    assert outputs["f"].dtype == tf.bool.as_datatype_enum
    response = served.predictions.Predict(predict_request("scalar", x=np.float32(2.0)))
    assert tf.make_ndarray(response.outputs["y"]) == 4.0
    response = served.predictions.Predict(predict_request(x=ones(0, 2)))
    assert tf.make_ndarray(response.outputs["y"]).shape == (0, 1)


GRPC_ERRORS = {  # servables/tensorflow/predict_util.cc and model_servers/server_core.cc
    "no name": (predict_request(name=""), "INVALID_ARGUMENT", ""),
    "unknown model": (predict_request(name="no"), "NOT_FOUND", "request: Latest(no)"),
    "version": (predict_request(version=9), "NOT_FOUND", "request: Specific(rules, 9)"),
    "label": (predict_request(label="no"), "INVALID_ARGUMENT", "version label: no"),
    "signature": (predict_request("no", x=ones(1, 2)), "FAILED_PRECONDITION", '"no" not found'),
    "missing": (predict_request(), "INVALID_ARGUMENT", ""),
    "name": (predict_request(z=ones(1, 2)), "INVALID_ARGUMENT", ""),
    "dtype": (predict_request(x=np.ones((1, 2))), "INVALID_ARGUMENT", ""),
    # By kernels in TF Serving, which compares no shapes.
    "shape": (predict_request(x=ones(1, 3)), "INVALID_ARGUMENT", ""),
    "rank": (predict_request(x=ones(2)), "INVALID_ARGUMENT", ""),
    "graph": (predict_request("picky", x=-ones(1)), "INVALID_ARGUMENT", "x is negative"),
}


@pytest.mark.parametrize("case", GRPC_ERRORS)
def test_predict_refuses(case, served):
    request, expected, text = GRPC_ERRORS[case]
    code, details = rpc_error(served.predictions.Predict, request)
    assert code == expected and text in details


def test_predict_refuses_a_request_without_a_spec_and_bad_filters(served):
    """servables/tensorflow/predict_util.cc."""
    code, details = rpc_error(served.predictions.Predict, predict_pb2.PredictRequest())
    assert (code, details) == ("INVALID_ARGUMENT", "Missing ModelSpec")
    for names in (["no"], ["y", "y"]):
        request = predict_request(x=ones(1, 2))
        request.output_filter.extend(names)
        code, details = rpc_error(served.predictions.Predict, request)
        assert code == "INVALID_ARGUMENT" and "output tensor alias" in details


def test_a_tensor_that_is_not_what_it_says_is_rpc_error(served):
    """servables/tensorflow/predict_util.cc: "tensor parsing error"."""
    request = predict_request(x=ones(1, 2))
    request.inputs["x"].tensor_content = b"123"
    assert rpc_error(served.predictions.Predict, request)[0] == "INVALID_ARGUMENT"


def test_a_deadline_is_kept(served):
    """model_servers/prediction_service_impl.cc, enforce_session_run_timeout."""
    request = predict_request("slow", x=ones(1), loops=np.array([2000]))
    with pytest.raises(grpc.RpcError) as caught:
        served.predictions.Predict(request, timeout=0.2)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def example_request(message_class, *rows, signature="", context=None):
    request = message_class()
    request.model_spec.name, request.model_spec.signature_name = "rules", signature
    target = request.input.example_list
    if context is not None:
        target = request.input.example_list_with_context
        _fill(target.context, context)
    for row in rows:
        _fill(target.examples.add(), row)
    return request


def _fill(example, row):
    for key, value in row.items():
        example.features.feature[key].float_list.value.append(value)


def test_classify_and_regress(served):
    """model_servers/tensorflow_model_server_test.py, testClassify and testRegress."""
    request = example_request(classification_pb2.ClassificationRequest, {"a": 1.0}, {"b": 1.0})
    request.model_spec.signature_name = "classify"
    response = served.predictions.Classify(request)
    (first, second) = response.result.classifications
    assert [c.label for c in first.classes] == ["low", "high"]
    assert first.classes[0].score == pytest.approx(second.classes[1].score)
    request = example_request(
        regression_pb2.RegressionRequest, {"a": 1.0}, signature="regress", context={"b": 5.0}
    )
    response = served.predictions.Regress(request)
    assert [r.value for r in response.result.regressions] == [6.0]
    assert response.model_spec.signature_name == "regress"


EXAMPLE_ERRORS = {  # servables/tensorflow/classifier.cc and regressor.cc
    ("Classify", "no"): ("INVALID_ARGUMENT", "No signature was found"),
    ("Classify", "two"): ("INVALID_ARGUMENT", "Expected one input Tensor."),
    ("Classify", "log"): ("FAILED_PRECONDITION", "inputs found in SignatureDef"),
    ("Classify", "regress"): ("FAILED_PRECONDITION", "at least one of "),
    ("Classify", "three outputs"): ("INVALID_ARGUMENT", "one or two output Tensors, found 3"),
    ("Classify", "number classes"): ("INVALID_ARGUMENT", "Expected classes Tensor of"),
    ("Classify", "flat scores"): ("INVALID_ARGUMENT", "[batch_size num_classes]"),
    ("Classify", "uneven"): ("INVALID_ARGUMENT", "should match in dim_size(1). Got 1 vs. 2"),
    ("Regress", "no"): ("INVALID_ARGUMENT", "No signature was found"),
    ("Regress", "classify"): ("INVALID_ARGUMENT", "Expected one output Tensor."),
    ("Regress", "flat scores"): ("FAILED_PRECONDITION", "No regression outputs found"),
    ("Regress", "wide"): ("INVALID_ARGUMENT", "either [batch_size] or [batch_size, 1]"),
    ("Regress", "integers"): ("INVALID_ARGUMENT", "Expected output Tensor of"),
    ("Regress", "one row"): ("INVALID_ARGUMENT", "did not match output batch size: 2 vs. 1"),
}
MESSAGES = {
    "Classify": classification_pb2.ClassificationRequest,
    "Regress": regression_pb2.RegressionRequest,
}


@pytest.mark.parametrize("api, signature", EXAMPLE_ERRORS)
def test_classify_and_regress_refuse(api, signature, served):
    request = example_request(MESSAGES[api], {"a": 1.0}, {"b": 1.0}, signature=signature)
    code, details = rpc_error(getattr(served.predictions, api), request)
    expected, text = EXAMPLE_ERRORS[api, signature]
    assert code == expected and text in details


def test_no_examples_are_refused(served):
    """servables/tensorflow/util.cc."""
    request = example_request(MESSAGES["Classify"], signature="classify")
    expected = "INVALID_ARGUMENT", "Input is empty."
    assert rpc_error(served.predictions.Classify, request) == expected


def test_multi_inference(served):
    """servables/tensorflow/multi_inference.cc."""
    request = inference_pb2.MultiInferenceRequest()
    _fill(request.input.example_list.examples.add(), {"a": 1.0})
    for signature in ("classify", "regress"):
        task = request.tasks.add(method_name=f"tensorflow/serving/{signature}")
        task.model_spec.name, task.model_spec.signature_name = "rules", signature
    first, second = served.predictions.MultiInference(request).results
    assert len(first.classification_result.classifications[0].classes) == 2
    assert second.regression_result.regressions[0].value == 1.0
    request.tasks[1].model_spec.signature_name = "classify"
    code, details = rpc_error(served.predictions.MultiInference, request)
    assert code == "INVALID_ARGUMENT" and "Duplicate evaluation of signature" in details
    request.tasks[1].model_spec.name = "other"
    assert rpc_error(served.predictions.MultiInference, request)[0] == "INVALID_ARGUMENT"


def test_metadata(served):
    """servables/tensorflow/get_model_metadata_impl.cc."""
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "rules"
    response = served.predictions.GetModelMetadata(request)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    x = signatures.signature_def["serving_default"].inputs["x"]
    assert [d.size for d in x.tensor_shape.dim] == [-1, 2]
    assert response.model_spec.version.value == 1
    for fields in ([], ["other"]):
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
        request.model_spec.name = "rules"
        assert rpc_error(served.predictions.GetModelMetadata, request)[0] == "INVALID_ARGUMENT"


def test_status(served):
    """model_servers/get_model_status_impl.cc."""
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "rules"
    (row,) = served.models.GetModelStatus(request).model_version_status
    available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
    assert (row.version, row.state, row.status.error_code) == (1, available, 0)
    request.model_spec.version.value = 9
    expected = "NOT_FOUND", "Could not find version 9 of model rules"
    assert rpc_error(served.models.GetModelStatus, request) == expected
    request.model_spec.name = "no"
    assert rpc_error(served.models.GetModelStatus, request)[0] == "NOT_FOUND"


def test_compressed_messages_are_an_option(rules, plain, serve):
    """gRPC's own default, which TF Serving keeps; off here until the operator allows it."""
    request = predict_request(x=ones(100, 2))
    compressed = {"compression": grpc.Compression.Gzip}
    with pytest.raises(grpc.RpcError) as caught:
        plain.predictions.Predict(request, **compressed)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    options = {"model_name": "rules", "model_base_path": str(rules), "grpc_compression": True}
    permissive = serve(**options, max_message_bytes=10_000)
    assert len(permissive.predictions.Predict(request, **compressed).outputs["y"].float_val) == 100
    with pytest.raises(grpc.RpcError) as caught:
        permissive.predictions.Predict(predict_request(x=ones(10_000, 2)), **compressed)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
