"""The client over REST, which needs no TensorFlow."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from jem_tf.client.wire import Arrays, Failed, Signature, Wire, shape_of


class RestWire(Wire):
    """The columnar form of `:predict`; types come from the metadata."""

    codes = {  # noqa: RUF012
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

    def connect(self, scheme: str, host: str, secrets: dict[str, bytes | None]) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ValueError("REST needs httpx: `pip install jem_tf[client]`.") from error
        self._client = httpx.Client(verify=_context(secrets) if scheme == "https" else True)
        which = ""
        if self.version is not None:
            which = f"/versions/{self.version}"
        elif self.label is not None:
            which = f"/labels/{quote(self.label, safe='')}"
        self._url = f"{scheme}://{host}/v1/models/{quote(self.model, safe='')}{which}"

    def call(self, signature: str, inputs: Arrays, seconds: float, client: Any) -> Arrays:
        known = client.signatures()
        body = {"signature_name": signature, "inputs": {k: _plain(v) for k, v in inputs.items()}}
        answer = self._send("POST", ":predict", seconds, json.dumps(body))["outputs"]
        if not _fits(answer, known.get(signature)):  # a new version has other outputs
            known = client.signatures(again=True)
        outputs = known[signature].outputs
        if len(outputs) == 1:
            answer = {next(iter(outputs)): answer}
        return {k: _array(v, outputs[k][0]) for k, v in answer.items()}

    def signatures(self, seconds: float) -> dict[str, Signature]:
        found = self._send("GET", "/metadata", seconds)["metadata"]["signature_def"]

        def known(infos: Any) -> dict[str, Any]:
            return {
                name: (
                    _numpy_name(info["dtype"]),
                    shape_of(
                        info["tensor_shape"].get("unknown_rank", False),
                        [int(d["size"]) for d in info["tensor_shape"].get("dim", [])],
                    ),
                )
                for name, info in infos.items()
            }

        return {
            name: Signature(known(s["inputs"]), known(s["outputs"]))
            for name, s in found["signature_def"].items()
            if name != "__saved_model_init_op"
        }

    def status(self, seconds: float) -> dict[int, str]:
        rows = self._send("GET", "", seconds)["model_version_status"]
        return {int(row["version"]): row["state"] for row in rows}

    def close(self) -> None:
        self._client.close()

    def _send(self, method: str, path: str, seconds: float, body: str | None = None) -> Any:
        import httpx

        try:
            answer = self._client.request(
                method, self._url + path, content=body, timeout=max(seconds, 1e-3)
            )
        except httpx.TimeoutException as error:
            raise Failed("DEADLINE_EXCEEDED", str(error) or "no answer in time") from error
        except httpx.TransportError as error:
            raise Failed("UNAVAILABLE", str(error)) from error
        try:
            content = json.loads(answer.text)
        except ValueError:
            content = {"error": answer.text[:500]}
        if answer.status_code != 200:
            text = content.get("error", "") if isinstance(content, dict) else str(content)
            raise Failed(self.codes.get(answer.status_code, "UNKNOWN"), text)
        return content


def _context(secrets: dict[str, bytes | None]) -> Any:
    import ssl
    import tempfile

    ca = secrets["ca"]
    context = ssl.create_default_context(cadata=None if ca is None else ca.decode())
    if secrets["certificate"] is not None and secrets["key"] is not None:
        with tempfile.TemporaryDirectory() as directory:  # ssl reads keys from files only
            chain, key = Path(directory, "chain"), Path(directory, "key")
            chain.write_bytes(secrets["certificate"])
            key.touch(0o600)
            key.write_bytes(secrets["key"])
            context.load_cert_chain(chain, key)
    return context


def _fits(answer: Any, known: Signature | None) -> bool:
    if known is None or len(known.outputs) == 1:
        return known is not None and not isinstance(answer, dict)
    return isinstance(answer, dict) and answer.keys() == known.outputs.keys()


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind in "OS":
        return _each(array.tolist(), lambda v: {"b64": base64.b64encode(v).decode()})
    return array.tolist()


def _each(value: Any, convert: Callable[[Any], Any]) -> Any:
    return [_each(v, convert) for v in value] if isinstance(value, list) else convert(value)


def _numpy_name(dtype: str) -> str:
    names = {"DT_FLOAT": "float32", "DT_DOUBLE": "float64", "DT_HALF": "float16"}
    return names.get(dtype, dtype.removeprefix("DT_").lower())


def _array(value: Any, dtype: str) -> np.ndarray:
    if dtype != "string":
        return np.array(value, dtype)
    return np.array(_each(value, _text), object)


def _text(value: Any) -> bytes:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value.encode()
