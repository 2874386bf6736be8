"""The Open Inference Protocol (V2) over REST, with its extension for binary tensors.

Not here: what the requests mean (`v2.py`), tensors as bytes (`v2_tensors.py`).
"""

import logging
import re
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
from starlette.responses import Response
from tensorflow.core.protobuf import meta_graph_pb2

from jem_tf.server import bodies, json_requests, json_responses, limits, v2, v2_tensors
from jem_tf.server.errors import RequestError, invalid, not_found
from jem_tf.server.flags import Options
from jem_tf.server.json_arrays import format_value, to_array
from jem_tf.server.limits import Bytes
from jem_tf.server.service import Service
from jem_tf.server.workers import Workers

log = logging.getLogger("jem_tf.server")
_HEADER = b"inference-header-content-length"  # bytes of JSON before those of binary tensors
_MODEL_PATH = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(/ready|/infer)?")


class RestV2:
    """The paths below `/v2`, as an ASGI application.

    ```python
    Route("/v2/{path:path}", RestV2(service, Workers(64, 256, 2**28), Options()))
    ```
    """

    def __init__(self, service: Service, workers: Workers, options: Options):
        self._v2, self._workers, self._options = v2.V2(service), workers, options

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        method, path = scope["method"], scope["raw_path"].decode("latin-1").rstrip("/")
        try:
            response = await self._route(method, path, scope, receive)
        except RequestError as error:
            response = _json({"error": error.message}, error.http_status)
        except Exception as error:
            log.exception("%s %s failed", method, path)
            response = _json({"error": f"{type(error).__name__} in {method} {path}"}, 500)
        await response(scope, receive, send)

    async def _route(self, method: str, path: str, scope: Any, receive: Any) -> Response:
        match = _MODEL_PATH.fullmatch(path)
        name, version, suffix = match.groups("") if match else ("", "", "")
        name, version = unquote(name), unquote(version)
        if match and suffix == "/infer" and method == "POST":
            service = self._v2.service
            infer = partial(self._infer, name, version, _header_length(scope))
            with service.metrics.request(service.metrics_name(name), "infer", "REST"):
                return await bodies.answer(self._workers, self._options, scope, receive, infer)
        if method not in ("GET", "HEAD") or suffix == "/infer":
            raise not_found(f"V2 has no {method} {path}.")
        if path == "/v2":
            return _json(v2.SERVER)
        if path == "/v2/health/live":
            return _json({"live": True})
        if path == "/v2/health/ready" or suffix == "/ready":
            ready = self._v2.is_ready(name, version)
            return _json({"ready": ready}, 200 if ready else 400)
        if match:
            return _json(self._v2.metadata(name, version))
        raise not_found(f"V2 has no {method} {path}.")

    def _infer(self, name: str, version: str, header_length: int | None, body: Bytes) -> Response:
        """Answer an inference request; runs in a thread."""
        document = json_requests.parse_body(body[:header_length])
        binary = memoryview(b"" if header_length is None else body)[header_length or 0 :]
        inputs = _parse_inputs(document, binary)
        requested = [_named(item, "outputs") for item in _items(document, "outputs")]
        parameters = _parameters(document)
        signature = parameters.get("signature_name", "")
        if not isinstance(signature, str):
            raise invalid("The parameter signature_name must be a string.")
        names = [item["name"] for item in requested]
        number, results = self._v2.infer(name, version, signature, inputs, names)
        default = parameters.get("binary_data_output") is True
        as_binary = {i["name"]: _parameters(i).get("binary_data", default) for i in requested}
        size = sum(array.nbytes for array in results.values())
        limits.reserve(json_responses.TEXT_BYTES * size, "The response")
        tensors, chunks = [], []
        for key, array in results.items():
            tensor: dict[str, Any] = {
                "name": key,
                "datatype": v2_tensors.datatype(array.dtype),
                "shape": list(array.shape),
            }
            if as_binary.get(key, default) is True:
                chunks.append(v2_tensors.to_bytes(array))
                tensor["parameters"] = {"binary_data_size": len(chunks[-1])}
            else:
                tensor["data"] = _to_json(key, array)
            tensors.append(tensor)
        response = {"model_name": name, "model_version": number, "outputs": tensors}
        if isinstance(document.get("id"), str):
            response["id"] = document["id"]
        if not chunks:
            return _json(response)
        header = json_responses.dump(response)
        headers = {_HEADER.decode(): str(len(header))}
        return Response(b"".join([header, *chunks]), 200, headers, "application/octet-stream")


def _json(document: Any, status: int = 200) -> Response:
    return Response(json_responses.dump(document), status, media_type="application/json")


def _header_length(scope: dict[str, Any]) -> int | None:
    value = dict(scope["headers"]).get(_HEADER)
    if value is None:
        return None
    if not value.isdigit() or len(value) > 18:
        raise invalid("Inference-Header-Content-Length must be a number of bytes.")
    return int(value)


def _parse_inputs(document: dict[str, Any], binary: memoryview) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for item in _items(document, "inputs"):
        name = _named(item, "inputs")["name"]
        if name in arrays:
            raise invalid(f"Input {name} is there twice.")
        dtype = v2_tensors.parse_dtype(name, item.get("datatype"))
        shape = v2_tensors.check_shape(name, item.get("shape"))
        size = _parameters(item).get("binary_data_size")
        if size is None:
            values = to_array(
                item.get("data"), meta_graph_pb2.TensorInfo(dtype=dtype.as_datatype_enum)
            )
            arrays[name] = v2_tensors.reshape(name, values.reshape(-1), shape)
            continue
        if type(size) is not int or not 0 <= size <= len(binary):
            raise invalid(f"The binary_data_size of input {name} must be up to {len(binary)}.")
        arrays[name] = v2_tensors.from_bytes(name, dtype, shape, binary[:size])
        binary = binary[size:]
    if binary:
        raise invalid(f"{len(binary)} bytes after the JSON belong to no input.")
    return arrays


def _items(document: dict[str, Any], key: str) -> list[Any]:
    items = document.get(key, [])
    if not isinstance(items, list):
        raise invalid(f"`{key}` must be a list of objects. Received: {format_value(items)}")
    return items


def _named(item: Any, key: str) -> dict[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise invalid(f"Each of `{key}` must be an object with a name.")
    return item


def _parameters(item: dict[str, Any]) -> dict[str, Any]:
    parameters = item.get("parameters", {})
    if not isinstance(parameters, dict):
        raise invalid(f"`parameters` must be an object. Received: {format_value(parameters)}")
    return parameters


def _to_json(name: str, array: np.ndarray) -> Any:
    """Return the values of a tensor as JSON; raise `RequestError` if JSON cannot hold them."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if array.dtype == object:
        try:
            return [value.decode() for value in flat]
        except UnicodeDecodeError as error:
            text = f"Output {name} is not text. Set its parameter binary_data."
            raise invalid(text) from error
    if array.dtype.kind not in "biuf" or array.dtype == np.float16:
        raise invalid(f"Output {name} is {array.dtype}. Set its parameter binary_data.")
    return flat
