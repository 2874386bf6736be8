"""What the clients for threads and for coroutines share: arguments, retries, and predictions.

Not here: sending (`client.py`, `async_client.py`), the transports (`grpc_wire.py`, `rest_wire.py`).
"""

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

import numpy as np

from jem_tf.client.grpc_wire import GrpcWire
from jem_tf.client.rest_wire import RestWire
from jem_tf.client.wire import Arrays, Endpoint, Signature, Wire, WireError, bytes_array

SCHEMES = ("grpc", "grpcs", "http", "https")
FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0  # seconds between retries; the pause doubles each time


class ServingError(OSError):
    """A request that the server refused or did not answer.

    `code` is the name of a gRPC status, over REST too; `message` is the server's text.
    """

    def __init__(self, code: str, message: str, address: str):
        super().__init__(f"{address} answers {code}: {message}")
        self.code, self.message = code, message


class Predictions(NamedTuple):
    """The outputs of a model, one row per input."""

    class_id: np.ndarray
    class_name: np.ndarray
    probabilities: np.ndarray  # calibrated, [rows, classes]
    energy: np.ndarray
    ood_score: np.ndarray  # higher: more like the training data
    is_ood: np.ndarray
    percentile: np.ndarray  # 100 times the conformal p-value; `DriftMonitor` takes the p-values


class ClientBase:
    """A model behind an address, with the arguments of `JEMClient`; subclasses send requests."""

    is_async = False

    def __init__(
        self,
        address: str,
        model: str,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 60.0,
        retries: int = 4,
        batch: int = 32,
        parallel: int = 4,
        ca: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        token: str = "",
    ):
        scheme, host = _parse_address(address)
        if version is not None and label is not None:
            raise ValueError(f"Give a version or a label. Received: {version!r} and {label!r}")
        if not model or min(batch, parallel) < 1 or timeout <= 0 or retries < 0:
            raise ValueError(
                "`model` must not be empty, `timeout`, `batch` and `parallel` must be positive, "
                f"and `retries` must not be negative. Received: model={model!r}, "
                f"timeout={timeout!r}, batch={batch!r}, parallel={parallel!r}, retries={retries!r}"
            )
        files = {"ca": ca, "certificate": certificate, "key": key}
        tls = {k: None if v is None else Path(v).read_bytes() for k, v in files.items()}
        endpoint = Endpoint(scheme, host, model, version, label, tls, token, retries)
        wire_class = GrpcWire if scheme.startswith("grpc") else RestWire
        self._wire: Wire = wire_class(endpoint, self.is_async)
        self.address, self.model = f"{scheme}://{host}/{model}", model
        self.timeout, self.retries, self.batch, self.parallel = timeout, retries, batch, parallel
        self._signatures: dict[str, Signature] | None = None

    def _split(self, inputs: Arrays) -> list[Arrays]:
        """Return parts of up to `batch` rows; one if the inputs have no common rows."""
        sizes = {len(v) if np.ndim(v) else -1 for v in inputs.values()}
        if len(sizes) != 1 or max(sizes) <= self.batch:
            return [inputs]
        starts = range(0, sizes.pop(), self.batch)
        return [{k: v[i : i + self.batch] for k, v in inputs.items()} for i in starts]

    def _pause(self, error: WireError, attempt: int, deadline: float) -> float:
        """Return the seconds before the next attempt; raise `ServingError` if there is none."""
        pause = min(FIRST_PAUSE * 2**attempt, MAX_PAUSE) * random.uniform(0.5, 1.0)
        if (
            error.code != "UNAVAILABLE"
            or self._wire.retries_itself
            or attempt >= self.retries
            or time.monotonic() + pause >= deadline
        ):
            raise ServingError(error.code, str(error), self.address) from error
        return pause


def concatenate(parts: list[Arrays]) -> Arrays:
    """Return the outputs of all parts."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def as_inputs(x: Any) -> np.ndarray:
    """Return inputs of a model: numbers as float32, texts as bytes."""
    array = np.asarray(x)
    if array.dtype.kind not in "USO":
        return array.astype(np.float32)
    texts = [text.encode() if isinstance(text, str) else text for text in array.ravel().tolist()]
    return bytes_array(texts).reshape(array.shape)


def read_images(images: Iterable[bytes | str | Path]) -> np.ndarray:
    """Return the contents of files, given as paths or contents."""
    return bytes_array([i if isinstance(i, bytes) else Path(i).read_bytes() for i in images])


def sample_inputs(labels: Sequence[int], seed: int) -> Arrays:
    """Return the inputs of `sample`."""
    seeds = (seed + np.arange(len(labels))).astype(np.int32)
    return {"labels": np.asarray(labels, np.int32), "seeds": seeds}


def to_predictions(outputs: Arrays) -> Predictions:
    """Return the outputs of `serving_default`."""
    names = outputs.get("class_name", outputs["class_id"].astype(str))  # absent in other exports
    class_names = [v.decode() if isinstance(v, bytes) else str(v) for v in names.tolist()]
    unknown = np.full(len(class_names), np.nan, np.float32)
    outputs = {"percentile": unknown, **outputs}  # absent in other exports, too
    others = {k: outputs[k] for k in Predictions._fields if k != "class_name"}
    return Predictions(class_name=np.array(class_names), **others)


def _parse_address(address: str) -> tuple[str, str]:
    """Return scheme and `host:port`."""
    parsed = urlparse(address if "://" in address else f"grpc://{address}")
    if parsed.scheme not in SCHEMES or not parsed.netloc or parsed.path.strip("/"):
        raise ValueError(
            "An address must be host:port, with grpc://, grpcs://, http:// or https:// in front "
            f"if needed. Received: {address!r}"
        )
    return parsed.scheme, parsed.netloc
