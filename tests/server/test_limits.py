"""Limits of a server: sizes, concurrency, deadlines, malformed requests."""

import gzip
import json
import threading
import time

import httpx
import numpy as np
import pytest
from tensorflow_serving.apis import inference_pb2

from .grpc_requests import ones, predict_request, rpc_error

PREDICT = "/v1/models/rules:predict"


@pytest.fixture(scope="module")
def limited(rules, shared_servers):
    """A server that accepts messages up to 10 000 bytes and two concurrent requests."""
    options = {"max_message_bytes": 10_000, "max_concurrent_requests": 2}
    return shared_servers(model_name="rules", model_base_path=str(rules), **options)


def test_large_requests_are_refused_on_both_transports(limited):
    code, _ = rpc_error(limited.predictions.Predict, predict_request(x=ones(5_000, 2)))
    assert code == "RESOURCE_EXHAUSTED"
    response = limited.rest.post(PREDICT, content=b" " * 10_001)
    assert response.status_code == 429 and "10000 bytes" in response.json()["error"]
    bomb = gzip.compress(b" " * 100_000)
    response = limited.rest.post(PREDICT, content=bomb, headers={"content-encoding": "gzip"})
    assert response.status_code == 429


def test_a_small_message_that_claims_a_large_tensor_is_refused(limited):
    request = predict_request(x=ones(1, 2))
    request.inputs["x"].tensor_shape.dim[1].size = 10**9
    request.inputs["x"].tensor_content = b""
    request.inputs["x"].float_val.append(1.0)
    code, text = rpc_error(limited.predictions.Predict, request)
    assert code == "INVALID_ARGUMENT" and "too large" in text


def test_requests_above_the_limit_are_refused_not_queued(limited):
    body = {"signature_name": "slow", "inputs": {"x": [1.0], "loops": [500]}}
    url, statuses = f"{limited.rest.base_url}{PREDICT}", []

    def post():
        statuses.append(httpx.post(url, json=body, timeout=60.0).status_code)

    threads = [threading.Thread(target=post) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200, 429}
    slow = predict_request("slow", x=ones(1), loops=np.array([500]))
    calls = [limited.predictions.Predict.future(slow) for _ in range(8)]
    assert {call.code().name for call in calls} == {"OK", "RESOURCE_EXHAUSTED"}


def test_a_slow_rest_request_times_out(rules, serve):
    client = serve(model_name="rules", model_base_path=str(rules), rest_api_timeout_in_ms=100)
    body = {"signature_name": "slow", "inputs": {"x": [1.0], "loops": [1000]}}
    assert client.rest.post(PREDICT, json=body).status_code == 504
    page = client.rest.get("/monitoring/prometheus/metrics").text
    assert 'request_count{model_name="rules",status="DEADLINE_EXCEEDED"} 1.0' in page


@pytest.mark.parametrize(
    "path, body",
    [
        (":predict", b'{"instances": ' + b"[" * 100 + b"]" * 100 + b"}"),
        (":predict", b'{"instances": ' + b"[" * 1000 + b"1" + b"]" * 1000 + b"}"),
        (":predict", rb'{"signature_name": "\ud800", "instances": [1]}'),
        (":predict", rb'{"instances": [{"\ud800": 1}]}'),
        (":classify", rb'{"signature_name": "classify", "examples": [{"\ud800": 1.0}]}'),
        ("/versions/" + "9" * 5000 + ":predict", b"{}"),
    ],
)
def test_malformed_requests_are_client_errors(path, body, served):
    assert served.rest.post("/v1/models/rules" + path, content=body).status_code == 400


def test_input_names_are_checked_before_tensors_are_parsed(served):
    request = predict_request(x=ones(1, 2))
    for i in range(200):
        proto = request.inputs[f"made up {i}"]
        proto.dtype = 1
        proto.float_val.append(1.0)
        proto.tensor_shape.dim.add(size=10**7)
    start = time.monotonic()
    code, text = rpc_error(served.predictions.Predict, request)
    assert code == "INVALID_ARGUMENT" and "Sent extra" in text
    assert time.monotonic() - start < 5


def test_no_timeout_is_an_option(rules, serve):
    base = {"model_name": "rules", "model_base_path": str(rules)}
    permissive = serve(**base, rest_api_timeout_in_ms=0)
    body = {"signature_name": "slow", "inputs": {"x": [1.0], "loops": [1]}}
    assert permissive.rest.post(PREDICT, json=body).status_code == 200


@pytest.mark.parametrize("kind", ["outputs", "tasks", "binary inputs"])
def test_long_lists_of_names_take_little_time(kind, plain):
    """Work that grows with the square of their number would stop the server for minutes."""
    names, start = [f"n{i}" for i in range(20_000)], time.monotonic()
    if kind == "outputs":
        request = predict_request(x=ones(1))
        request.output_filter.extend(["y"] * 20_000)
        assert rpc_error(plain.predictions.Predict, request)[0] == "INVALID_ARGUMENT"
    elif kind == "tasks":
        request = inference_pb2.MultiInferenceRequest()
        for name in names:
            spec = request.tasks.add().model_spec
            spec.name, spec.signature_name = "no", name
        assert rpc_error(plain.predictions.MultiInference, request)[0] == "INVALID_ARGUMENT"
    else:
        size = {"parameters": {"binary_data_size": 1}, "datatype": "BOOL", "shape": [1]}
        header = json.dumps({"inputs": [{"name": name, **size} for name in names]}).encode()
        headers = {"inference-header-content-length": str(len(header))}
        body = header + bytes(len(names)) + bytes(2**24)
        response = plain.rest.post("/v2/models/rules/infer", content=body, headers=headers)
        assert response.status_code == 400
    assert time.monotonic() - start < 3.0


def test_responses_are_counted_before_they_are_written(rules, serve):
    """One row of input is repeated on the wire; the response would hold all of them."""
    options = {"max_memory_bytes": 2**20, "max_rows": 10**6}
    client = serve(model_name="rules", model_base_path=str(rules), **options)
    request = predict_request("log", x=ones(1))
    request.inputs["x"].tensor_shape.dim[0].size = 60_000
    code, text = rpc_error(client.predictions.Predict, request)
    assert code == "RESOURCE_EXHAUSTED" and "The response" in text
