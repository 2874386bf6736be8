"""5 000 requests that mean nothing: each gets a client error, and memory stays flat."""

import json
import os
import resource

import grpc
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tensorflow_serving.apis import predict_pb2

from . import models
from .conftest import clients, free_ports

FUZZ = settings(
    deadline=None,
    derandomize=True,  # the same requests every time
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
SIGNATURES = ["", "serving_default", "two", "echo", "scalar", "ragged", "picky", "classify", "no"]
leaf = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.just({"b64": "AAAA"}),
    st.just({"b64": "*"}),
)
values = st.recursive(
    leaf,
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


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "batching"])
def served(request, tmp_path_factory):
    from jem_tf.server import Options
    from jem_tf.server.serving import ModelServer

    base = tmp_path_factory.mktemp("models") / "rules"
    models.write(base)
    port, rest = free_ports(2)
    places = {"port": port, "rest_api_port": rest, "drain_seconds": 5.0}
    options = Options("rules", str(base), enable_batching=request.param, **places)
    with ModelServer(options):
        yield clients(f"127.0.0.1:{port}", f"127.0.0.1:{rest}")


def fine(answer):
    assert answer.status_code < 500 or answer.status_code == 501, (answer.status_code, answer.text)


def memory():
    """Of this process, in MB; 0 where the system does not say."""
    if not os.path.exists("/proc/self/statm"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def test_nothing_that_is_sent_breaks_the_server(served):
    @settings(FUZZ, max_examples=600)
    @given(documents, st.sampled_from(["predict", "classify", "regress"]))
    def bodies(document, method):
        text = json.dumps(document)
        fine(served.rest.post(f"/v1/models/rules:{method}", content=text))

    @settings(FUZZ, max_examples=250)
    @given(st.binary(max_size=200), st.booleans())
    def bytes_(body, zipped):
        headers = {"content-encoding": "gzip"} if zipped else {}
        fine(served.rest.post("/v1/models/rules:predict", content=body, headers=headers))

    characters = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#\\")
    words = st.sampled_from(
        ["v1", "models", "rules", "versions", "1", "labels", "metadata", ":predict", "..", "%2e%2e"]
    )

    @settings(FUZZ, max_examples=250)
    @given(st.lists(words | st.text(characters, max_size=8), max_size=6), st.sampled_from("GPDO"))
    def paths(parts, method):
        name = {"G": "GET", "P": "POST", "D": "DELETE", "O": "OPTIONS"}[method]
        url = served.rest.base_url.copy_with(raw_path=("/" + "/".join(parts)).encode())
        fine(served.rest.request(name, url))

    @settings(FUZZ, max_examples=250)
    @given(
        st.sampled_from(SIGNATURES),
        st.dictionaries(
            st.sampled_from(["x", "a", "b", "s", "f", "i", "inputs", ""]),
            st.tuples(
                st.integers(-1, 30),
                st.lists(st.integers(-2, 2**40), max_size=4),
                st.binary(max_size=32),
                st.lists(st.floats(width=32), max_size=4),
            ),
            max_size=3,
        ),
        st.lists(st.text(max_size=4), max_size=2),
    )
    def messages(signature, tensors, outputs):
        request = predict_pb2.PredictRequest(output_filter=outputs)
        request.model_spec.name, request.model_spec.signature_name = "rules", signature
        for name, (dtype, shape, content, floats) in tensors.items():
            proto = request.inputs[name]
            proto.dtype = max(dtype, 0)
            proto.tensor_content = content
            proto.float_val.extend(floats)
            for size in shape:
                proto.tensor_shape.dim.add(size=size)
        try:
            served.predictions.Predict(request)
        except grpc.RpcError as error:
            assert error.code().name in (
                "INVALID_ARGUMENT",
                "FAILED_PRECONDITION",
                "UNIMPLEMENTED",
            ), (error.code(), error.details())

    raw = served.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

    @settings(FUZZ, max_examples=100)
    @given(st.binary(max_size=100))
    def garbage(message):
        with pytest.raises(grpc.RpcError) as caught:
            raw(message)
        # gRPC itself answers INTERNAL to what is no message at all, as for TF Serving.
        unread = "deserializing" in caught.value.details()
        code = caught.value.code().name
        assert code == "INTERNAL" if unread else code in ("INVALID_ARGUMENT", "NOT_FOUND")

    tests = (bodies, bytes_, paths, messages, garbage)
    for test in tests:
        test()
    before = memory()
    for test in tests:  # and again, with what caches there are filled
        test()
    assert memory() < before + 50  # 0 < 50 where there is no /proc
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "rules"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones((1, 2), np.float32)))
    assert list(served.predictions.Predict(request).outputs["y"].float_val) == [3.0]
