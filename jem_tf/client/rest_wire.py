"""The client over REST, which needs no TensorFlow."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from jem_tf.client.wire import (
    INIT_SIGNATURE,
    Arrays,
    Exchange,
    Signature,
    StaleSignaturesError,
    Wire,
    WireError,
    to_shape,
)

_GRPC_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class RestWire(Wire):
    """Calls the column form of `:predict`; the types of outputs come from the metadata."""

    needs_signatures = True

    def connect(self, is_async: bool) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ValueError("REST needs httpx: `pip install jem_tf[client]`.") from error
        endpoint = self.endpoint
        verify = _ssl_context(endpoint.tls) if endpoint.scheme == "https" else True
        headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
        client: Any = httpx.AsyncClient if is_async else httpx.Client
        self._client = client(verify=verify, headers=headers)
        version = ""
        if endpoint.version is not None:
            version = f"/versions/{endpoint.version}"
        elif endpoint.label is not None:
            version = f"/labels/{quote(endpoint.label, safe='')}"
        model = quote(endpoint.model, safe="")
        self._url = f"{endpoint.scheme}://{endpoint.host}/v1/models/{model}{version}"

    def call(self, signature: str, inputs: Arrays) -> Exchange:
        body = {"signature_name": signature, "inputs": {k: _to_json(v) for k, v in inputs.items()}}

        def parse(content: Any, signatures: dict[str, Signature]) -> Arrays:
            values = content["outputs"]
            if not _matches(values, signatures.get(signature)):
                raise StaleSignaturesError
            outputs = signatures[signature].outputs
            if len(outputs) == 1:
                values = {next(iter(outputs)): values}
            return {name: _to_array(value, outputs[name][0]) for name, value in values.items()}

        return Exchange(("POST", ":predict", json.dumps(body)), parse)

    def signatures(self) -> Exchange:
        def parse(content: Any) -> dict[str, Signature]:
            signatures = content["metadata"]["signature_def"]["signature_def"]
            return {
                name: Signature(_types_and_shapes(s["inputs"]), _types_and_shapes(s["outputs"]))
                for name, s in signatures.items()
                if name != INIT_SIGNATURE
            }

        return Exchange(("GET", "/metadata", None), parse)

    def status(self) -> Exchange:
        def parse(content: Any) -> dict[int, str]:
            return {int(row["version"]): row["state"] for row in content["model_version_status"]}

        return Exchange(("GET", "", None), parse)

    def send(self, request: Any, seconds: float) -> Any:
        with _transport_errors():
            response = self._start(request, seconds)
        return _content(response)

    async def asend(self, request: Any, seconds: float) -> Any:
        with _transport_errors():
            response = await self._start(request, seconds)
        return _content(response)

    def close(self) -> Any:
        close = getattr(self._client, "aclose", None) or self._client.close
        return close()

    def _start(self, request: Any, seconds: float) -> Any:
        method, path, body = request
        url, timeout = self._url + path, max(seconds, 1e-3)
        return self._client.request(method, url, content=body, timeout=timeout)


@contextmanager
def _transport_errors() -> Iterator[None]:
    import httpx

    try:
        yield
    except httpx.TimeoutException as error:
        raise WireError("DEADLINE_EXCEEDED", str(error) or "no response in time") from error
    except httpx.TransportError as error:
        raise WireError("UNAVAILABLE", str(error)) from error


def _content(response: Any) -> Any:
    """Return the JSON value of a response; raise `WireError` if its status is an error."""
    try:
        content = json.loads(response.text)
    except ValueError:
        content = {"error": response.text[:500]}
    if response.status_code != 200:
        text = content.get("error", "") if isinstance(content, dict) else str(content)
        raise WireError(_GRPC_CODES.get(response.status_code, "UNKNOWN"), text)
    return content


def _ssl_context(tls: dict[str, bytes | None]) -> Any:
    import ssl
    import tempfile

    ca = tls["ca"]
    context = ssl.create_default_context(cadata=None if ca is None else ca.decode())
    if tls["certificate"] is not None and tls["key"] is not None:
        with tempfile.TemporaryDirectory() as directory:  # `ssl` reads keys from files only
            chain, key = Path(directory, "chain"), Path(directory, "key")
            chain.write_bytes(tls["certificate"])
            key.touch(0o600)
            key.write_bytes(tls["key"])
            context.load_cert_chain(chain, key)
    return context


def _matches(values: Any, signature: Signature | None) -> bool:
    """Return whether the outputs of a response have the form of `signature`."""
    if signature is None or len(signature.outputs) == 1:
        return signature is not None and not isinstance(values, dict)
    return isinstance(values, dict) and values.keys() == signature.outputs.keys()


def _types_and_shapes(infos: Any) -> dict[str, Any]:
    return {
        name: (
            _numpy_type(info["dtype"]),
            to_shape(
                info["tensor_shape"].get("unknown_rank", False),
                [int(d["size"]) for d in info["tensor_shape"].get("dim", [])],
            ),
        )
        for name, info in infos.items()
    }


def _numpy_type(dtype: str) -> str:
    names = {"DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16"}
    return names.get(dtype, dtype.removeprefix("DT_").lower())


def _to_json(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind in "OS":
        return _map_leaves(array.tolist(), lambda v: {"b64": base64.b64encode(v).decode()})
    return array.tolist()


def _to_array(value: Any, dtype: str) -> np.ndarray:
    if dtype != "string":
        return np.array(value, dtype)
    return np.array(_map_leaves(value, _to_bytes), object)


def _to_bytes(value: Any) -> bytes:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value.encode()


def _map_leaves(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_map_leaves(item, convert) for item in value]
    return convert(value)
