"""REST as TF Serving documents it, on the embedded server or on a real TF Serving.

Each test or table names what it follows: a page of tensorflow.org/tfx/serving, or a file below
tensorflow_serving/ in TF Serving 2.20. Where error messages differ between versions of TF Serving,
only the code is compared.
"""

import base64
import gzip
import json
import math

import numpy as np
import pytest

BASE = "/v1/models/rules"


def post(served, body, path=":predict", **options):
    content = body if isinstance(body, bytes) else json.dumps(body)
    return served.rest.post(BASE + path, content=content, **options)


def test_rest_rows_and_columns(served):
    """Page api_rest, "Predict API"."""
    row = {"version": 1, "y": [3.0]}
    response = post(served, {"instances": [[1.0, 1.0], [1, 1]]})
    assert response.status_code == 200 and response.headers["content-type"] == "application/json"
    assert response.json() == {"predictions": [row, row]}
    assert post(served, {"instances": [{"x": [1.0, 1.0]}]}).json() == {"predictions": [row]}
    columns = {"outputs": {"version": [1], "y": [[3.0]]}}
    assert post(served, {"inputs": [[1.0, 1.0]]}).json() == columns
    assert post(served, {"inputs": {"x": [[1.0, 1.0]], "extra": 1}}).json() == columns
    assert post(served, {"inputs": [[1.0, 1.0]]}, "/versions/1:predict").json() == columns
    single_output = {"signature_name": "log", "instances": [1.0]}
    assert post(served, single_output).json() == {"predictions": [0.0]}


def test_rest_several_inputs(served):
    """Page api_rest, "Specifying input tensors"."""
    rows = {"signature_name": "two", "instances": [{"a": 1.0, "b": 2}, {"a": 3, "b": 4}]}
    assert post(served, rows).json()["predictions"][1] == {"total": 7.0, "product": 12.0}
    columns = {"signature_name": "two", "inputs": {"a": [1.0], "b": [2]}}
    assert post(served, columns).json() == {"outputs": {"total": [3.0], "product": [2.0]}}


def test_rest_strings_and_binary(served):
    """Page api_rest, "Encoding binary values"."""
    raw = b"\xff\x00\x01"
    encoded = {"b64": base64.b64encode(raw).decode()}
    rows = [{"s": "text", "f": True, "i": 1}, {"s": {"b64": "dGV4dA=="}, "f": False, "i": -2}]
    response = post(served, {"signature_name": "echo", "instances": rows})
    first, second = response.json()["predictions"]
    assert first == {"s": "text", "s_bytes": {"b64": "dGV4dA=="}, "f": True, "i": 1}
    assert second["s"] == "text" and second["i"] == -2
    columns = {"signature_name": "echo", "inputs": {"s": [encoded], "f": [True], "i": [1]}}
    assert post(served, columns).json()["outputs"]["s_bytes"] == [encoded]


def test_rest_scalars_and_shapes(served):
    """util/json_tensor_test.cc, FromJsonSingleScalarTensor and errors."""
    scalar = {"signature_name": "scalar", "inputs": 2.5}
    assert post(served, scalar).json() == {"outputs": 5.0}
    response = post(served, {"signature_name": "sum", "instances": [1.0, 2.0]})
    assert response.status_code == 400 and "no shape information" in response.json()["error"]
    total = post(served, {"signature_name": "sum", "inputs": [1.0, 2.0]}).json()["outputs"]
    assert total == {"y": 3.0, "z": [1.0, 2.0]}


def test_rest_non_finite_numbers(served):
    """Page api_rest, "JSON conformance": NaN and Infinity are bare words."""
    response = post(served, b'{"signature_name": "log", "instances": [NaN, 0.0, Infinity, 1.0]}')
    nan, low, high, zero = json.loads(response.text)["predictions"]
    assert math.isnan(nan) and low == -math.inf and high == math.inf and zero == 0.0
    assert "-Infinity" in response.text and "NaN" in response.text


def test_rest_precision(served):
    """Page api_rest, "Floating point precision": every float32 is returned unchanged."""
    values = np.random.default_rng(0).normal(size=200).astype(np.float32)
    body = {"signature_name": "sum", "inputs": values.tolist()}
    returned = np.float32(post(served, body).json()["outputs"]["z"])
    np.testing.assert_array_equal(returned, values)
    exact = {"signature_name": "double", "instances": [0.1, 1e300]}
    assert post(served, exact).json() == {"predictions": [0.2, 2e300]}


def test_rest_gzip(served):
    """util/net_http/server/internal/evhttp_request.cc decompresses bodies."""
    body = gzip.compress(json.dumps({"instances": [[1.0, 1.0]]}).encode())
    response = post(served, body, headers={"content-encoding": "gzip"})
    assert response.json()["predictions"][0]["y"] == [3.0]


def test_rest_status_and_metadata(served):
    """Page api_rest, "Model status API" and "Model metadata API"."""
    status = {"error_code": "OK", "error_message": ""}
    row = {"version": "1", "state": "AVAILABLE", "status": status}
    for path in (BASE, f"{BASE}/versions/1"):
        assert served.rest.get(path).json() == {"model_version_status": [row]}
    metadata = served.rest.get(f"{BASE}/metadata").json()
    assert metadata["model_spec"] == {"name": "rules", "signature_name": "", "version": "1"}
    signatures = metadata["metadata"]["signature_def"]["signature_def"]
    x = signatures["serving_default"]["inputs"]["x"]
    assert x["dtype"] == "DT_FLOAT" and [d["size"] for d in x["tensor_shape"]["dim"]] == ["-1", "2"]


def test_rest_classify_and_regress(served):
    """Page api_rest, "Classify and Regress API"."""
    body = {"signature_name": "classify", "examples": [{"a": 1.0, "b": [0.0]}]}
    (((label, score), (_, other)),) = post(served, body, ":classify").json()["results"]
    assert label == "low" and score + other == pytest.approx(1.0)
    body = {"signature_name": "regress", "context": {"b": 5.0}, "examples": [{"a": 1.0}]}
    assert post(served, body, ":regress").json() == {"results": [6.0]}


ACCEPTED = {
    "json_tensor.cc: integers become the nearest float32": (
        {"signature_name": "log", "inputs": [16777217, 2**70]},
        {"outputs": [np.log(np.float32(2**24)), np.log(np.float32(2.0**70))]},
    ),
    "json_tensor.cc: numbers beyond float32 become infinite": (
        {"signature_name": "log", "inputs": [1e39]},
        {"outputs": [math.inf]},
    ),
    "json_tensor.cc: integers beyond 2**53 become the nearest float64": (
        {"signature_name": "double", "inputs": [2**53 + 1]},
        {"outputs": [2.0**54]},
    ),
    "util/json_tensor.cc, ParseJson; in 2.20, not in older versions": (
        b'{"signature_name": "double", "inputs": [1.0]} and more',
        {"outputs": [2.0]},
    ),
    "json_tensor.cc finds the first of equal keys": (
        b'{"signature_name": "double", "inputs": [1.0], "inputs": [2.0], "signature_name": "no"}',
        {"outputs": [2.0]},
    ),
    "json_tensor.cc: a byte order mark is skipped": (
        b'\xef\xbb\xbf{"signature_name": "double", "inputs": [1.0]}',
        {"outputs": [2.0]},
    ),
    "page docker: half_plus_two declares [-1, 1] and is sent [3]": (
        {"signature_name": "half_plus_two", "instances": [1.0, 2.0, 5.0]},
        {"predictions": [2.5, 3.0, 4.5]},
    ),
    "json_tensor_test.cc: scalar strings": (
        {"signature_name": "word", "inputs": "text"},
        {"outputs": {"word": "text", "word_bytes": {"b64": "dGV4dA=="}}},
    ),
}


@pytest.mark.parametrize("source", ACCEPTED)
def test_rest_accepts(source, served):
    body, expected = ACCEPTED[source]
    response = post(served, body)
    assert response.status_code == 200, response.text
    (key,) = expected
    answer = json.loads(response.text)[key]
    if isinstance(expected[key], dict):
        assert answer == expected[key]
    else:
        np.testing.assert_allclose(answer, expected[key], rtol=1e-6)


REST_ERRORS = {
    "util/json_tensor_test.cc, SingleUnnamedTensorErrors": [
        (b"", "The document is empty"),
        (b"{", "JSON Parse error"),
        (b"[1]", "Is not object"),
        ({"signature_name": 1, "instances": [[1.0, 1.0]]}, "must be a string value"),
        ({"inputs": [], "instances": []}, "only one of 'inputs' or 'instances'"),
        ({"instances": [[1.0, 1.0], [1.0]]}, "Expecting tensor size: 2 but got: 1"),
        ({"instances": [[1.0, 1.0], [[1.0, 1.0]]]}, "Expecting shape"),
        ({"signature_name": "log", "instances": [1.0, [1.0]]}, "Expecting shape"),
        ({"instances": [[1.0, 1.0], ["a", "b"]]}, "element: 1 of 'instances' list. Error: INVALID"),
        ({"instances": [[1.0, "a"]]}, "is not of expected type: float"),
        ({"instances": [[1.0, None]]}, "Type: Null is not of expected type: float"),
        ({"instances": [[1.0, True]]}, "is not of expected type: float"),
    ],
    "util/json_tensor_test.cc, MultipleNamedTensorErrors": [
        ({"instances": [{"z": [1.0, 1.0]}]}, "does not have named input: z"),
        ({"instances": [{"x": [1.0, 1.0]}, [1.0, 1.0]]}, "Expecting object but got list at item 1"),
        ({"instances": [[1.0, 1.0], {"x": [1.0, 1.0]}]}, "Expecting value/list but got object"),
        (
            {"signature_name": "two", "instances": [{"a": 1.0, "b": 1}, {"a": [1.0], "b": 1}]},
            "element: 1 key: a of 'instances' list. Error: INVALID_ARGUMENT: Expecting shape",
        ),
    ],
    "util/json_tensor.cc, FillPredictRequestFromJson": [
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"instances": {}}, "Excepting 'instances' to be an list/array"),
        ({"instances": []}, "No values in 'instances' array"),
        ({"instances": [[1.0, 1.0], 1.0]}, ""),
        ({"inputs": [[1.0, 1.0], [1.0]]}, "Encountered list at unexpected size: 1 at level: 1"),
        ({"inputs": {}}, "Missing named input: x in 'inputs' object."),
        ({"signature_name": "two", "instances": [1.0]}, "expecting list of objects"),
        ({"signature_name": "two", "inputs": [1.0]}, "expecting an object"),
        ({"signature_name": "two", "instances": [{"a": 1.0}]}, "keys must be equal to: a,b"),
        ({"signature_name": "two", "inputs": {"a": [1.0], "b": [1.5]}}, "expected type: int64"),
        ({"signature_name": "two", "inputs": {"a": [1.0], "b": [2**63]}}, "expected type: int64"),
        ({"signature_name": "echo", "inputs": {"s": [1], "f": [True], "i": [1]}}, "type: string"),
        ({"signature_name": "echo", "inputs": {"s": ["a"], "f": [1], "i": [1]}}, "type: bool"),
        (
            {"signature_name": "echo", "inputs": {"s": [{"b64": "~"}], "f": [True], "i": [1]}},
            "Unable to base64 decode",
        ),
        (
            {"signature_name": "echo", "inputs": {"s": [{"b65": ""}], "f": [True], "i": [1]}},
            "not formatted correctly for base64 data",
        ),
    ],
    "model_servers/http_rest_api_handler.cc, GetInfoMap": [
        ({"signature_name": "no", "instances": [[1.0, 1.0]]}, '"no" not found in signature def'),
    ],
    "servables/tensorflow/predict_util.cc, RunPredict: the error of the graph": [
        ({"instances": [[1.0, 1.0, 1.0]]}, ""),
        ({"instances": [1.0, 1.0]}, ""),
        ({"signature_name": "picky", "instances": [-1.0]}, "assertion failed: [x is negative]"),
    ],
}
REST_ERROR_ROWS = [(source, *row) for source, rows in REST_ERRORS.items() for row in rows]


@pytest.mark.parametrize("source, body, text", REST_ERROR_ROWS, ids=range(len(REST_ERROR_ROWS)))
def test_rest_refuses(source, body, text, served):
    response = post(served, body)
    assert response.status_code == 400, (source, response.text)
    assert response.headers["content-type"] == "application/json"
    assert text in response.json()["error"], source


@pytest.mark.parametrize("body", [{}, {"examples": 1}, {"examples": []}, {"examples": [1]}])
def test_rest_refuses_wrong_examples(body, served):
    """util/json_tensor.cc, FillClassifyRegressRequestFromJson."""
    response = post(served, {"signature_name": "classify", **body}, ":classify")
    assert response.status_code == 400 and response.json()["error"]


PATHS = [  # model_servers/http_rest_api_util.cc, ParseModelInfo, and http_rest_api_handler_test.cc
    ("GET", "/v1/models/no", 404, "Could not find any versions of model no"),
    ("GET", "/v1/models/rules/versions/9", 404, "Could not find version 9 of model rules"),
    ("GET", "/v1/models/rules:predict", 400, "Malformed request: GET /v1/models/rules:predict"),
    ("POST", "/v1/models/rules", 400, "Malformed request: POST /v1/models/rules"),
    ("POST", "/v1/models/rules:guess", 400, "Malformed request"),
    ("DELETE", "/v1/models/rules", 400, "Malformed request: DELETE /v1/models/rules"),
    ("POST", "/v1/models/rules:predict?x=1", 400, "Malformed request"),
    ("POST", "/v1/models/no:predict", 404, "Servable not found for request: Latest(no)"),
    ("POST", "/v1/models/rules/versions/9:predict", 404, "Specific(rules, 9)"),
    ("POST", "/v1/models/rules/labels/no:predict", 400, "Unrecognized servable version label: no"),
    ("GET", "/v1/models", 400, "Missing model name in request."),
    ("GET", "/v1/models/..%2F..%2Fetc", 404, ""),
]


@pytest.mark.parametrize("method, path, status, text", PATHS)
def test_rest_paths(method, path, status, text, served):
    response = served.rest.request(method, path, content=b'{"instances": [[1.0, 1.0]]}')
    assert response.status_code == status and text in response.json()["error"]


@pytest.mark.parametrize("path", ["/V1/Models/rules", "/v1/MODELS/rules/Versions/1"])
def test_rest_paths_are_case_insensitive(path, served):
    """model_servers/http_rest_api_util.cc matches with (?i), then compares the verb exactly."""
    body = b'{"instances": [[1.0, 1.0]]}'
    assert served.rest.get(path).status_code == 200
    assert served.rest.post(f"{path}:predict", content=body).status_code == 200
    assert served.rest.post(f"{path}:Predict", content=body).status_code == 400
    assert served.rest.get(path.replace("rules", "Rules")).status_code == 404


def test_rest_unknown_path(served):
    """model_servers/http_server.cc: a dispatcher for paths below /v1/ only."""
    assert served.rest.get("/other").status_code == 404
