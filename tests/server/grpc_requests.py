"""Requests over gRPC that several tests send."""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2


def predict_request(signature="", name="rules", version=None, label="", **inputs):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    if label:
        request.model_spec.version_label = label
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return request


def rpc_error(method, request):
    """Return code and details of the error that `method(request)` raises."""
    with pytest.raises(grpc.RpcError) as caught:
        method(request)
    return caught.value.code().name, caught.value.details()


def ones(*shape):
    return np.ones(shape, np.float32)
