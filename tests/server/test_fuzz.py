"""About 5 000 random requests: each gets a client error or an answer, and memory stays flat."""

import json
import os
import resource
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tensorflow_serving.apis import predict_pb2

from .grpc_requests import ones, predict_request

FUZZ = settings(
    deadline=None,
    derandomize=True,  # the same requests in every run
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
MAX_GROWTH = 50  # MB
SCALE = int(os.environ.get("FUZZ_SCALE", "1"))  # `make fuzz` sets it
SIGNATURES = ["", "serving_default", "two", "echo", "scalar", "ragged", "picky", "classify", "no"]
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.just({"b64": "AAAA"}),
    st.just({"b64": "*"}),
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("xabsfi"), inner),
    max_leaves=12,
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "signature_name": st.one_of(st.sampled_from(SIGNATURES), values),
        "instances": values,
        "inputs": values,
        "examples": values,
        "context": values,
    },
)
path_words = st.sampled_from(
    ["v1", "models", "rules", "versions", "1", "labels", "metadata", ":predict", "..", "%2e%2e"]
)
path_characters = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#\\")
tensors = st.tuples(
    st.integers(-1, 30),
    st.lists(st.integers(-2, 2**40), max_size=4),
    st.binary(max_size=32),
    st.lists(st.floats(width=32), max_size=4),
)
tensor_names = st.sampled_from(["x", "a", "b", "s", "f", "i", "inputs", ""])


class Fuzzer:
    """Sends each request to all servers, and records it to send it again."""

    def __init__(self, *clients):
        self.clients, self.requests = clients, []

    def send(self, method, *arguments):
        self.requests.append((method, arguments))
        for client in self.clients:
            method(client, *arguments)

    def send_again(self):
        """Send all requests once more; memory must not grow."""

        def send_all(client):
            for method, arguments in self.requests:
                method(client, *arguments)

        before = memory()  # all caches are filled
        with ThreadPoolExecutor() as threads:
            list(threads.map(send_all, self.clients))
        assert memory() < before + MAX_GROWTH


def send_rest(client, method, path, content=None, headers=None):
    url = client.rest.base_url.copy_with(raw_path=path)
    response = client.rest.request(method, url, content=content, headers=headers)
    status = response.status_code
    assert status < 500 or status == 501, (status, response.text)


def send_grpc(client, request):
    try:
        client.predictions.Predict(request)
    except grpc.RpcError as error:
        accepted = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNIMPLEMENTED")
        assert error.code().name in accepted, (error.code(), error.details())


def send_garbage(client, message):
    method = client.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    with pytest.raises(grpc.RpcError) as caught:
        method(message)
    # gRPC itself answers INTERNAL to bytes that are no message, in TF Serving as well.
    unreadable = "deserializing" in caught.value.details()
    code = caught.value.code().name
    assert code == "INTERNAL" if unreadable else code in ("INVALID_ARGUMENT", "NOT_FOUND")


@settings(FUZZ, max_examples=300 * SCALE)
@given(document=documents, method=st.sampled_from(["predict", "classify", "regress"]))
def fuzz_documents(fuzzer, document, method):
    path = f"/v1/models/rules:{method}".encode()
    fuzzer.send(send_rest, "POST", path, json.dumps(document).encode())


@settings(FUZZ, max_examples=120 * SCALE)
@given(body=st.binary(max_size=200), gzipped=st.booleans())
def fuzz_bodies(fuzzer, body, gzipped):
    headers = {"content-encoding": "gzip"} if gzipped else {}
    fuzzer.send(send_rest, "POST", b"/v1/models/rules:predict", body, headers)


@settings(FUZZ, max_examples=120 * SCALE)
@given(
    parts=st.lists(path_words | st.text(path_characters, max_size=8), max_size=6),
    method=st.sampled_from(["GET", "POST", "DELETE", "OPTIONS"]),
)
def fuzz_paths(fuzzer, parts, method):
    fuzzer.send(send_rest, method, ("/" + "/".join(parts)).encode())


@settings(FUZZ, max_examples=120 * SCALE)
@given(
    signature=st.sampled_from(SIGNATURES),
    inputs=st.dictionaries(tensor_names, tensors, max_size=3),
    outputs=st.lists(st.text(max_size=4), max_size=2),
)
def fuzz_tensors(fuzzer, signature, inputs, outputs):
    request = predict_pb2.PredictRequest(output_filter=outputs)
    request.model_spec.name, request.model_spec.signature_name = "rules", signature
    for name, (dtype, shape, content, floats) in inputs.items():
        proto = request.inputs[name]
        proto.dtype = max(dtype, 0)
        proto.tensor_content = content
        proto.float_val.extend(floats)
        for size in shape:
            proto.tensor_shape.dim.add(size=size)
    fuzzer.send(send_grpc, request)


@settings(FUZZ, max_examples=100 * SCALE)
@given(message=st.binary(max_size=100))
def fuzz_messages(fuzzer, message):
    fuzzer.send(send_garbage, message)


def memory():
    """Return the resident memory of this process in MB; 0 where there is no /proc."""
    if not os.path.exists("/proc/self/statm"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def test_random_requests_do_not_break_the_server(plain, batching, caplog):
    fuzzer = Fuzzer(plain, batching)
    for fuzz in (fuzz_documents, fuzz_bodies, fuzz_paths, fuzz_tensors, fuzz_messages):
        fuzz(fuzzer)
    fuzzer.send_again()
    for client in fuzzer.clients:
        response = client.predictions.Predict(predict_request(x=ones(1, 2)))
        assert list(response.outputs["y"].float_val) == [3.0]
    assert not [record for record in caplog.records if record.exc_info]
