"""REST as TF Serving documents it, on the embedded server or on a real TF Serving.

Where error messages differ between versions of TF Serving, only the code is compared.
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
    rows = {"signature_name": "two", "instances": [{"a": 1.0, "b": 2}, {"a": 3, "b": 4}]}
    assert post(served, rows).json()["predictions"][1] == {"total": 7.0, "product": 12.0}
    columns = {"signature_name": "two", "inputs": {"a": [1.0], "b": [2]}}
    assert post(served, columns).json() == {"outputs": {"total": [3.0], "product": [2.0]}}


def test_rest_strings_and_binary(served):
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
    scalar = {"signature_name": "scalar", "inputs": 2.5}
    assert post(served, scalar).json() == {"outputs": 5.0}
    response = post(served, {"signature_name": "sum", "instances": [1.0, 2.0]})
    assert response.status_code == 400 and "no shape information" in response.json()["error"]
    total = post(served, {"signature_name": "sum", "inputs": [1.0, 2.0]}).json()["outputs"]
    assert total == {"y": 3.0, "z": [1.0, 2.0]}


def test_rest_non_finite_numbers(served):
    """NaN and Infinity are bare words in requests and responses."""
    response = post(served, b'{"signature_name": "log", "instances": [NaN, 0.0, Infinity, 1.0]}')
    nan, low, high, zero = json.loads(response.text)["predictions"]
    assert math.isnan(nan) and low == -math.inf and high == math.inf and zero == 0.0
    assert "-Infinity" in response.text and "NaN" in response.text


def test_rest_precision(served):
    """Every float32 is returned unchanged."""
    values = np.random.default_rng(0).normal(size=200).astype(np.float32)
    body = {"signature_name": "sum", "inputs": values.tolist()}
    returned = np.float32(post(served, body).json()["outputs"]["z"])
    np.testing.assert_array_equal(returned, values)
    exact = {"signature_name": "double", "instances": [0.1, 1e300]}
    assert post(served, exact).json() == {"predictions": [0.2, 2e300]}


def test_rest_gzip(served):
    body = gzip.compress(json.dumps({"instances": [[1.0, 1.0]]}).encode())
    response = post(served, body, headers={"content-encoding": "gzip"})
    assert response.json()["predictions"][0]["y"] == [3.0]


def test_rest_status_and_metadata(served):
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
    body = {"signature_name": "classify", "examples": [{"a": 1.0, "b": [0.0]}]}
    (((label, score), (_, other)),) = post(served, body, ":classify").json()["results"]
    assert label == "low" and score + other == pytest.approx(1.0)
    body = {"signature_name": "regress", "context": {"b": 5.0}, "examples": [{"a": 1.0}]}
    assert post(served, body, ":regress").json() == {"results": [6.0]}


REST_ERRORS = [
    (b"", "The document is empty"),
    (b"{", "JSON Parse error"),
    (b"[1]", "Is not object"),
    (b'{"instances": [[1.0, 1.0]]} x', "JSON Parse error"),
    ({}, "Missing 'inputs' or 'instances' key"),
    ({"inputs": [], "instances": []}, "only one of 'inputs' or 'instances'"),
    ({"instances": {}}, "Excepting 'instances' to be an list/array"),
    ({"instances": []}, "No values in 'instances' array"),
    ({"instances": [[1.0, 1.0], [1.0]]}, ""),
    ({"instances": [[1.0, 1.0], 1.0]}, ""),
    ({"instances": [[1.0, "a"]]}, "is not of expected type: float"),
    ({"instances": [[1.0, None]]}, "Type: Null is not of expected type: float"),
    ({"instances": [[1.0, True]]}, "is not of expected type: float"),
    ({"instances": [[1.0, 16777217]]}, "without loss of precision"),
    ({"instances": [[1.0, 1e39]]}, "without loss of precision"),
    ({"instances": [{"z": [1.0, 1.0]}]}, "does not have named input: z"),
    ({"instances": [{"x": [1.0, 1.0]}, [1.0, 1.0]]}, "Expecting object but got list at item 1"),
    ({"instances": [[1.0, 1.0], {"x": [1.0, 1.0]}]}, "Expecting value/list but got object"),
    ({"instances": [[1.0, 1.0, 1.0]]}, ""),
    ({"inputs": {}}, "Missing named input: x in 'inputs' object."),
    ({"signature_name": 1, "instances": [[1.0, 1.0]]}, "must be a string value"),
    ({"signature_name": "no", "instances": [[1.0, 1.0]]}, '"no" not found in signature def'),
    ({"signature_name": "two", "instances": [1.0]}, "expecting list of objects"),
    ({"signature_name": "two", "inputs": [1.0]}, "expecting an object"),
    ({"signature_name": "two", "instances": [{"a": 1.0}]}, "keys must be equal to: a,b"),
    ({"signature_name": "two", "inputs": {"a": [1.0], "b": [1.5]}}, "expected type: int64"),
    ({"signature_name": "two", "inputs": {"a": [1.0], "b": [2**63]}}, ""),
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
    ({"signature_name": "picky", "instances": [-1.0]}, "x is negative"),
]


@pytest.mark.parametrize("body, text", REST_ERRORS, ids=range(len(REST_ERRORS)))
def test_rest_refuses(body, text, served):
    response = post(served, body)
    assert response.status_code == 400, response.text
    assert response.headers["content-type"] == "application/json"
    assert text in response.json()["error"]


@pytest.mark.parametrize("body", [{}, {"examples": 1}, {"examples": []}, {"examples": [1]}])
def test_rest_refuses_wrong_examples(body, served):
    response = post(served, {"signature_name": "classify", **body}, ":classify")
    assert response.status_code == 400 and response.json()["error"]


PATHS = [
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


def test_rest_unknown_path(served):
    assert served.rest.get("/other").status_code == 404
