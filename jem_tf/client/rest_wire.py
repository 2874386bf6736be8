"""The client over REST, which needs no TensorFlow."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from jem_tf.client.wire import INIT_SIGNATURE, Arrays, Signature, Wire, WireError, to_shape

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

    def connect(self, scheme: str, host: str, tls: dict[str, bytes | None]) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ValueError("REST needs httpx: `pip install jem_tf[client]`.") from error
        self._client = httpx.Client(verify=_ssl_context(tls) if scheme == "https" else True)
        version = ""
        if self.version is not None:
            version = f"/versions/{self.version}"
        elif self.label is not None:
            version = f"/labels/{quote(self.label, safe='')}"
        self._url = f"{scheme}://{host}/v1/models/{quote(self.model, safe='')}{version}"

    def call(
        self,
        signature: str,
        inputs: Arrays,
        seconds: float,
        get_signatures: Callable[[bool], dict[str, Signature]],
    ) -> Arrays:
        signatures = get_signatures(False)
        body = {"signature_name": signature, "inputs": {k: _to_json(v) for k, v in inputs.items()}}
        values = self._send("POST", ":predict", seconds, json.dumps(body))["outputs"]
        if not _matches(values, signatures.get(signature)):  # a new version has other outputs
            signatures = get_signatures(True)
        outputs = signatures[signature].outputs
        if len(outputs) == 1:
            values = {next(iter(outputs)): values}
        return {name: _to_array(value, outputs[name][0]) for name, value in values.items()}

    def signatures(self, seconds: float) -> dict[str, Signature]:
        metadata = self._send("GET", "/metadata", seconds)["metadata"]
        return {
            name: Signature(_types_and_shapes(s["inputs"]), _types_and_shapes(s["outputs"]))
            for name, s in metadata["signature_def"]["signature_def"].items()
            if name != INIT_SIGNATURE
        }

    def status(self, seconds: float) -> dict[int, str]:
        rows = self._send("GET", "", seconds)["model_version_status"]
        return {int(row["version"]): row["state"] for row in rows}

    def close(self) -> None:
        self._client.close()

    def _send(self, method: str, path: str, seconds: float, body: str | None = None) -> Any:
        import httpx

        try:
            response = self._client.request(
                method, self._url + path, content=body, timeout=max(seconds, 1e-3)
            )
        except httpx.TimeoutException as error:
            raise WireError("DEADLINE_EXCEEDED", str(error) or "no response in time") from error
        except httpx.TransportError as error:
            raise WireError("UNAVAILABLE", str(error)) from error
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
