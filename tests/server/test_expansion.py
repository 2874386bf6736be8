"""Requests that are small on the wire and large in memory."""

import time

import numpy as np
import pytest
from tensorflow_serving.apis import classification_pb2, predict_pb2

from jem_tf.server.errors import RequestError
from jem_tf.server.message_size import MAX_RECORDS, parsed_bytes

from .grpc_requests import ones, predict_request, rpc_error

PREDICT = "/v1/models/rules:predict"


def claim_rows(request, name, rows):
    """Make the first dimension of an input `rows`; its last value counts for all of them."""
    proto = request.inputs[name]
    if proto.tensor_content:
        proto.float_val.append(np.frombuffer(proto.tensor_content, np.float32)[-1])
        proto.tensor_content = b""
    proto.tensor_shape.dim[0].size = rows
    return request


def test_a_repeated_string_is_counted_as_often_as_it_is_repeated(plain):
    row = {"f": np.array([True]), "i": np.array([1], np.int32)}
    request = predict_request("echo", s=np.array([b"x" * 50_000], object), **row)
    assert plain.predictions.Predict(request).outputs["i"].int_val == [1]
    code, text = rpc_error(plain.predictions.Predict, claim_rows(request, "s", 2_000))
    assert code == "INVALID_ARGUMENT" and "s is too large: [2000] takes 1001" in text


@pytest.mark.parametrize("rows, accepted", [(4096, True), (4097, False), (260_000, False)])
def test_rows_are_bounded(plain, rows, accepted):
    request = claim_rows(predict_request(x=ones(1, 2)), "x", rows)
    assert len(request.SerializeToString()) < 80
    if accepted:
        assert len(plain.predictions.Predict(request).outputs["y"].float_val) == rows
        return
    start = time.monotonic()
    code, text = rpc_error(plain.predictions.Predict, request)
    assert code == "INVALID_ARGUMENT" and "up to 4096 rows" in text
    assert time.monotonic() - start < 1.0


def test_rows_are_bounded_over_rest_and_in_examples(plain):
    response = plain.rest.post(PREDICT, json={"instances": [[1.0, 2.0]] * 4097})
    assert response.status_code == 400 and "up to 4096 rows" in response.json()["error"]
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name, request.model_spec.signature_name = "rules", "classify"
    for _ in range(4097):
        request.input.example_list.examples.add()
    code, text = rpc_error(plain.predictions.Classify, request)
    assert code == "INVALID_ARGUMENT" and "up to 4096 rows" in text


def test_the_limit_follows_the_largest_batch_and_the_flag(rules, serve, tmp_path):
    file = tmp_path / "batching.config"
    file.write_text("max_batch_size { value: 2 }")
    options = {"model_name": "rules", "model_base_path": str(rules)}
    batching = {"enable_batching": True, "batching_parameters_file": str(file)}
    for client, limit in ((serve(**options, **batching), 128), (serve(**options, max_rows=3), 3)):
        client.predictions.Predict(predict_request(x=ones(limit, 2)))
        code, text = rpc_error(client.predictions.Predict, predict_request(x=ones(limit + 1, 2)))
        assert code == "INVALID_ARGUMENT" and f"up to {limit} rows" in text


def test_a_context_is_counted_for_every_example(plain):
    """1 MB of context and 1 000 examples would be 1 GB."""
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name, request.model_spec.signature_name = "rules", "classify"
    examples = request.input.example_list_with_context
    examples.context.features.feature["a"].bytes_list.value.append(b"x" * 2**20)
    for _ in range(1000):
        examples.examples.add()
    code, text = rpc_error(plain.predictions.Classify, request)
    assert code == "RESOURCE_EXHAUSTED" and "The context in every example" in text
    features = {"a": "x" * 2**20}
    body = {"signature_name": "classify", "context": features, "examples": [{}] * 1000}
    assert plain.rest.post("/v1/models/rules:classify", json=body).status_code == 429


def test_messages_of_very_many_fields_are_refused_before_they_are_parsed(plain):
    """Two bytes for an empty string: 64 MB of them would take more than 512 MB."""
    tensor = predict_pb2.PredictRequest().inputs["s"]
    tensor.dtype = 7
    head = b"\x0a\x07\x0a\x05rules"
    content = tensor.SerializeToString() + b"\x42\x00" * (MAX_RECORDS + 1)
    entry = b"\x0a\x01s\x12" + encode_varint(len(content)) + content
    message = head + b"\x12" + encode_varint(len(entry)) + entry
    assert predict_pb2.PredictRequest.FromString(message[: len(head)]).model_spec.name == "rules"
    method = plain.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    code, text = rpc_error(method, message)
    assert code == "RESOURCE_EXHAUSTED" and "fields" in text


def encode_varint(number):
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def test_a_field_that_is_longer_than_its_message_is_malformed():
    """Packed numbers (`float_val` of an input) with a length of 2**63."""
    tensor = b"\x2a" + encode_varint(2**63)  # field 5 of TensorProto
    entry = b"\x12" + encode_varint(len(tensor)) + tensor
    message = b"\x12" + encode_varint(len(entry)) + entry
    with pytest.raises(RequestError, match="ends after its message"):
        parsed_bytes(message, predict_pb2.PredictRequest.DESCRIPTOR)


def test_the_size_of_a_parsed_message():
    descriptor = predict_pb2.PredictRequest.DESCRIPTOR
    request = predict_request(x=ones(1000, 2))
    assert 8_000 < parsed_bytes(request.SerializeToString(), descriptor) < 10_000
    request.inputs["i"].int64_val.extend([1] * 1000)  # one byte each, packed
    request.inputs["i"].string_val.extend([b""] * 1000)
    size = parsed_bytes(request.SerializeToString(), descriptor)
    assert 8_000 + 8 * 1000 + 16 * 1000 < size < 60_000
    for malformed in (b"\x12\x7f", b"\x0b", b"\x80" * 20, b"\x12\x03\x0a\x05abcdef"):
        with pytest.raises(RequestError, match="not a valid protocol buffer"):
            parsed_bytes(malformed, descriptor)
