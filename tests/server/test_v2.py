"""The Open Inference Protocol (V2) over REST and gRPC: the same answers, and clear errors.

`test_v2_tritonclient.py` asks the same server by a client of others.
"""

import json
import struct

import grpc
import numpy as np
import pytest

from jem_tf.server import v2_protos, v2_tensors
from jem_tf.server.errors import RequestError

from .grpc_requests import rpc_error

INFER = "/v2/models/rules/infer"


def tensor(name, datatype, shape, data):
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def post(served, body, path=INFER, **headers):
    content = body if isinstance(body, bytes) else json.dumps(body)
    return served.rest.post(path, content=content, headers=headers)


def method(served, name):
    """Return the method `name` of the V2 service over gRPC."""
    response = v2_protos.new(f"{name}Response")
    return served.channel.unary_unary(
        f"/inference.GRPCInferenceService/{name}",
        lambda message: message.SerializeToString(),
        type(response).FromString,
    )


def infer_request(**fields):
    return v2_protos.new("ModelInferRequest", **{"model_name": "rules", **fields})


X = tensor("x", "FP32", [2, 2], [1.0, 1.0, 2.0, 2.0])
X_MESSAGE = {"name": "x", "datatype": "FP32", "shape": [2, 2]}
X_CONTENTS = X_MESSAGE | {"contents": {"fp32_contents": [1, 1, 2, 2]}}


def test_rest_infer(served):
    response = post(served, {"id": "7", "inputs": [X]})
    assert response.status_code == 200, response.text
    assert response.json() == {
        "model_name": "rules",
        "model_version": "1",
        "id": "7",
        "outputs": [
            tensor("version", "INT64", [2], [1, 1]),
            tensor("y", "FP32", [2, 1], [3.0, 6.0]),
        ],
    }
    nested = X | {"data": [[1.0, 1.0], [2.0, 2.0]]}
    body = {"inputs": [nested], "outputs": [{"name": "y"}]}
    for path in (INFER, "/v2/models/rules/versions/1/infer"):
        answer = post(served, body, path).json()["outputs"]
        assert answer == [tensor("y", "FP32", [2, 1], [3.0, 6.0])]


def test_rest_infer_with_a_signature_and_strings(served):
    body = {
        "parameters": {"signature_name": "echo"},
        "inputs": [
            tensor("s", "BYTES", [1], ["text"]),
            tensor("f", "BOOL", [1], [True]),
            tensor("i", "INT32", [1], [-2]),
        ],
        "outputs": [{"name": "s"}, {"name": "f"}, {"name": "i"}],
    }
    assert post(served, body).json()["outputs"] == body["inputs"]


def test_rest_infer_with_binary_tensors(served):
    """The extension of Triton that `tritonclient` uses by default."""
    raw = np.float32([[1, 1], [2, 2]]).tobytes()
    strings = b"".join(struct.pack("<I", len(s)) + s for s in (b"\xff\x00", b""))
    header = json.dumps(
        {
            "inputs": [
                tensor("s", "BYTES", [2], None) | {"parameters": {"binary_data_size": 10}},
                tensor("f", "BOOL", [2], [True, False]),
                tensor("i", "INT32", [2], None) | {"parameters": {"binary_data_size": 8}},
            ],
            "outputs": [
                {"name": "i"},
                {"name": "s", "parameters": {"binary_data": True}},
                {"name": "f"},
            ],
            "parameters": {"signature_name": "echo"},
        }
    ).encode()
    length = {"inference-header-content-length": str(len(header))}
    numbers = np.int32([5, 6]).tobytes()
    response = post(served, header + strings + numbers, **length)
    assert response.status_code == 200, response.text
    size = int(response.headers["inference-header-content-length"])
    outputs = json.loads(response.content[:size])["outputs"]
    assert [(o["name"], o.get("data")) for o in outputs] == [
        ("i", [5, 6]),
        ("s", None),
        ("f", [True, False]),
    ]
    assert response.content[size:] == strings
    header = json.dumps(
        {
            "inputs": [X_MESSAGE | {"parameters": {"binary_data_size": len(raw)}}],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    response = post(served, header + raw, **{"inference-header-content-length": str(len(header))})
    size = int(response.headers["inference-header-content-length"])
    expected = np.int64([1, 1]).tobytes() + np.float32([3, 6]).tobytes()
    assert response.content[size:] == expected


def test_rest_metadata_and_health(served):
    assert served.rest.get("/v2").json()["name"] == "jem_tf"
    assert served.rest.get("/v2/health/live").json() == {"live": True}
    for path in ("/v2/health/ready", "/v2/models/rules/ready", "/v2/models/rules/versions/1/ready"):
        response = served.rest.get(path)
        assert response.status_code == 200 and response.json()["ready"] is True
    for path in ("/v2/models/no/ready", "/v2/models/rules/versions/9/ready"):
        assert served.rest.get(path).status_code == 400
    assert served.rest.get("/v2/models/rules").json() == {
        "name": "rules",
        "versions": ["1"],
        "platform": "tensorflow_savedmodel",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
        "outputs": [
            {"name": "version", "datatype": "INT64", "shape": [-1]},
            {"name": "y", "datatype": "FP32", "shape": [-1, 1]},
        ],
    }


def test_grpc_infer(served):
    """Values come back as they were sent: in the field of their type, or as bytes."""
    infer = method(served, "ModelInfer")
    raw = np.float32([1, 1, 2, 2]).tobytes()
    requests = {
        "contents": infer_request(id="7", inputs=[X_CONTENTS], outputs=[{"name": "y"}]),
        "raw": infer_request(inputs=[X_MESSAGE], outputs=[{"name": "y"}], raw_input_contents=[raw]),
    }
    response = infer(requests["contents"])
    (output,) = response.outputs
    assert (response.id, response.model_name, response.model_version) == ("7", "rules", "1")
    assert (output.name, output.datatype, list(output.shape)) == ("y", "FP32", [2, 1])
    assert list(output.contents.fp32_contents) == [3.0, 6.0]
    response = infer(requests["raw"])
    assert response.raw_output_contents == [np.float32([3, 6]).tobytes()]


def test_grpc_infer_with_a_signature(served):
    parameter = {"key": "signature_name", "value": {"string_param": "echo"}}
    inputs = [
        {"name": "s", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [b"\xff"]}},
        {"name": "f", "datatype": "BOOL", "shape": [1], "contents": {"bool_contents": [True]}},
        {"name": "i", "datatype": "INT32", "shape": [1], "contents": {"int_contents": [-2]}},
    ]
    names = [{"name": name} for name in "sfi"]
    request = infer_request(parameters=[parameter], inputs=inputs, outputs=names)
    response = method(served, "ModelInfer")(request)
    assert list(response.outputs) == list(request.inputs)


def test_grpc_metadata_and_health(served):
    def ask(api, **fields):
        return method(served, api)(v2_protos.new(f"{api}Request", **fields))

    assert ask("ServerLive").live and ask("ServerReady").ready
    assert ask("ModelReady", name="rules").ready
    assert ask("ModelReady", name="rules", version="1").ready
    assert not ask("ModelReady", name="no").ready
    assert "binary_tensor_data" in ask("ServerMetadata").extensions
    metadata = ask("ModelMetadata", name="rules")
    assert [(t.name, list(t.shape)) for t in metadata.inputs] == [("x", [-1, 2])]
    assert metadata.platform == "tensorflow_savedmodel" and metadata.versions == ["1"]


REST_ERRORS = {
    "no JSON": (b"{", 400, "JSON Parse error"),
    "no inputs": ({}, 400, "Missing but required: {x}"),
    "inputs no list": ({"inputs": {}}, 400, "must be a list of objects"),
    "no name": ({"inputs": [{}]}, 400, "object with a name"),
    "datatype": ({"inputs": [X | {"datatype": "FP8"}]}, 400, "must be one of BOOL, UINT8"),
    "other datatype": ({"inputs": [X | {"datatype": "FP64"}]}, 400, "of type float32, got float64"),
    "no shape": ({"inputs": [X | {"shape": None}]}, 400, "must be a list"),
    "negative": ({"inputs": [X | {"shape": [-1, 2]}]}, 400, "not negative"),
    "large": ({"inputs": [X | {"shape": [2**20, 2**20]}]}, 400, "has 4 values, and its shape"),
    "huge": ({"inputs": [X | {"shape": [2**40, 2**40]}]}, 400, "product of at most"),
    "empty": ({"inputs": [X | {"shape": [0, 2**62, 5], "data": []}]}, 400, "product of at most"),
    "too few": ({"inputs": [X | {"data": [1.0]}]}, 400, "has 1 values, and its shape [2, 2] needs"),
    "no data": ({"inputs": [X | {"data": None}]}, 400, "Null is not of expected type"),
    "twice": ({"inputs": [X, X]}, 400, "Input x is there twice."),
    "unknown input": ({"inputs": [X | {"name": "z"}]}, 400, "alias not found in signature: z"),
    "output": ({"inputs": [X], "outputs": [{"name": "z"}]}, 400, "output tensor alias not found"),
    "parameters": ({"inputs": [X], "parameters": []}, 400, "`parameters` must be an object"),
    "signature": ({"inputs": [X], "parameters": {"signature_name": "no"}}, 400, '"no" not found'),
    "binary size": (
        {"inputs": [X_MESSAGE | {"parameters": {"binary_data_size": 16}}]},
        400,
        "binary_data_size of input x must be up to 0",
    ),
}


@pytest.mark.parametrize("case", REST_ERRORS)
def test_rest_refuses(case, served):
    body, status, text = REST_ERRORS[case]
    response = post(served, body)
    assert response.status_code == status, response.text
    assert text in response.json()["error"]


@pytest.mark.parametrize(
    "verb, path, status",
    [
        ("GET", "/v2/models/no", 404),
        ("POST", "/v2/models/no/infer", 404),
        ("POST", "/v2/models/rules/versions/9/infer", 404),
        ("POST", "/v2/models/rules/versions/label/infer", 400),
        ("GET", "/v2/models/rules/infer", 404),
        ("POST", "/v2/models/rules", 404),
        ("GET", "/v2/else", 404),
        ("GET", "/v2else", 404),
    ],
)
def test_rest_paths(verb, path, status, served):
    response = served.rest.request(verb, path, content=json.dumps({"inputs": [X]}))
    assert response.status_code == status and response.json()["error"]


GRPC_ERRORS = {
    "model": (infer_request(model_name="no", inputs=[X_CONTENTS]), "NOT_FOUND"),
    "values": (infer_request(inputs=[X_CONTENTS | {"shape": [3, 2]}]), "INVALID_ARGUMENT"),
    "huge": (infer_request(inputs=[X_CONTENTS | {"shape": [2**62, 2**62]}]), "INVALID_ARGUMENT"),
    "raw size": (infer_request(inputs=[X_MESSAGE], raw_input_contents=[b"1"]), "INVALID_ARGUMENT"),
    "raw number": (infer_request(inputs=[X_MESSAGE], raw_input_contents=[b""] * 2), "INVALID_ARG"),
    "half": (infer_request(inputs=[X_CONTENTS | {"datatype": "FP16"}]), "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("case", GRPC_ERRORS)
def test_grpc_refuses(case, served):
    request, expected = GRPC_ERRORS[case]
    code, details = rpc_error(method(served, "ModelInfer"), request)
    assert code.startswith(expected) and details


def test_integers_out_of_range_are_refused(served):
    tensor = {"name": "i", "datatype": "INT8", "shape": [1], "contents": {"int_contents": [300]}}
    code, details = rpc_error(method(served, "ModelInfer"), infer_request(inputs=[tensor]))
    assert code == "INVALID_ARGUMENT" and "is not INT8" in details


def test_requests_are_counted_and_limited_as_others(rules, serve):
    client = serve(model_name="rules", model_base_path=str(rules), max_message_bytes=10_000)
    post(client, {"inputs": [X]})
    method(client, "ModelInfer")(infer_request(inputs=[X_CONTENTS]))
    page = client.rest.get("/monitoring/prometheus/metrics").text
    assert 'request_count{model_name="rules",status="OK"} 2.0' in page
    large = tensor("x", "FP32", [5_000, 2], [1.0] * 10_000)
    assert post(client, {"inputs": [large]}).status_code == 429
    raw = np.ones(10_000, np.float32).tobytes()
    request = infer_request(inputs=[X_MESSAGE | {"shape": [5_000, 2]}], raw_input_contents=[raw])
    with pytest.raises(grpc.RpcError) as caught:
        method(client, "ModelInfer")(request)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("datatype", v2_tensors.DATATYPES)
def test_bytes_of_tensors_return_to_the_same_tensors(datatype):
    dtype = v2_tensors.DATATYPES[datatype]
    values = [b"", b"\x00\xff", b"abc", b"d"] if datatype == "BYTES" else [0, 1, 0, 1]
    array = np.array(values, dtype.as_numpy_dtype if datatype != "BYTES" else object)
    array = array.reshape(2, 2)
    again = v2_tensors.from_bytes("x", dtype, (2, 2), v2_tensors.to_bytes(array))
    assert again.dtype == array.dtype and v2_tensors.datatype(again.dtype) == datatype
    np.testing.assert_array_equal(again, array)


@pytest.mark.parametrize("raw", [b"\x01\0\0\0", b"\x01\0\0\0ab", b"\xff\xff\xff\xffa", b""])
def test_malformed_strings_are_refused(raw):
    with pytest.raises(RequestError, match="Input x"):
        v2_tensors.from_bytes("x", v2_tensors.DATATYPES["BYTES"], (1,), raw)
