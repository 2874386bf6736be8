"""A typed client for models behind TF Serving or the embedded server.

Not here: the transports (`grpc_wire.py`, `rest_wire.py`).
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

import numpy as np

from jem_tf.client.grpc_wire import GrpcWire
from jem_tf.client.rest_wire import RestWire
from jem_tf.client.wire import Arrays, Signature, Wire, WireError, bytes_array

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


class JEMClient:
    """A client of one served model.

    ```python
    client = JEMClient("localhost:8500", "digits")             # gRPC; or http://localhost:8501
    predictions = client.predict(x)
    predictions.probabilities, predictions.is_ood
    client.predict_images(["seven.png"]).class_name
    client.call("refine", inputs=x)["refined"]                 # any signature
    ```

    Args:
        address: `host:port` or `grpc://…` (`grpcs://…` with TLS), `http://…`, `https://…`.
        model: its name on the server.
        version: a version number; None: the newest version.
        label: the label of a version, instead of `version`.
        timeout: seconds for one request, including retries.
        retries: how often a request is sent again if the server is unavailable.
        batch: rows per request; larger arrays are split, and `parallel` parts are sent at a time.
        ca: PEM file of the authority that signed the server's certificate; default: the system's.
        certificate: PEM file of the client's own certificate.
        key: PEM file of the client's own key.
    """

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
        wire_class = GrpcWire if scheme.startswith("grpc") else RestWire
        files = {"ca": ca, "certificate": certificate, "key": key}
        tls = {k: None if v is None else Path(v).read_bytes() for k, v in files.items()}
        self._wire: Wire = wire_class(scheme, host, model, version, label, tls)
        self.address, self.model = f"{scheme}://{host}/{model}", model
        self.timeout, self.retries, self.batch, self.parallel = timeout, retries, batch, parallel
        self._signatures: dict[str, Signature] | None = None

    def predict(self, x: Any) -> Predictions:
        """Return classes, calibrated probabilities and OOD verdicts of inputs `[rows, …]`."""
        return _to_predictions(self.call("serving_default", inputs=np.asarray(x, np.float32)))

    def predict_images(self, images: Iterable[bytes | str | Path]) -> Predictions:
        """Return the predictions for PNG or JPEG files, given as paths or contents.

        The server decodes, resizes and scales them.
        """
        contents = [i if isinstance(i, bytes) else Path(i).read_bytes() for i in images]
        outputs = self.call("serving_default_bytes", image_bytes=bytes_array(contents))
        return _to_predictions(outputs)

    def logits(self, x: Any) -> np.ndarray:
        """Return the logits `[rows, classes]` of inputs `[rows, …]`."""
        return self.call("logits", inputs=np.asarray(x, np.float32))["logits"]

    def energy(self, x: Any) -> np.ndarray:
        """Return the energy `[rows]` of inputs `[rows, …]`."""
        return self.call("energy", inputs=np.asarray(x, np.float32))["energy"]

    def ood_score(self, x: Any) -> Arrays:
        """Return every statistic by name, `fused`, `percentile` and `is_ood`."""
        return self.call("ood_score", inputs=np.asarray(x, np.float32))

    def sample(self, labels: Sequence[int], seed: int = 0) -> np.ndarray:
        """Return one sample per class in `labels`; the same `seed` gives the same samples."""
        seeds = (seed + np.arange(len(labels))).astype(np.int32)
        return self.call("sample", labels=np.asarray(labels, np.int32), seeds=seeds)["samples"]

    def call(self, signature: str, **inputs: np.ndarray) -> Arrays:
        """Return all outputs of a signature; arrays of more than `batch` rows are split."""
        sizes = {len(v) if np.ndim(v) else -1 for v in inputs.values()}
        if len(sizes) != 1 or max(sizes) <= self.batch:
            return self._send_with_retries(
                lambda seconds: self._wire.call(signature, inputs, seconds, self.signatures)
            )
        starts = range(0, sizes.pop(), self.batch)
        parts = [{k: v[i : i + self.batch] for k, v in inputs.items()} for i in starts]
        with ThreadPoolExecutor(self.parallel) as pool:
            outputs = list(pool.map(lambda part: self.call(signature, **part), parts))
        return {name: np.concatenate([part[name] for part in outputs]) for name in outputs[0]}

    def signatures(self, refresh: bool = False) -> dict[str, Signature]:
        """Return the signatures of the model; cached unless `refresh`."""
        if self._signatures is None or refresh:
            self._signatures = self._send_with_retries(self._wire.signatures)
        return self._signatures

    def status(self) -> dict[int, str]:
        """Return the state of each version, such as `{2: "AVAILABLE"}`."""
        return self._send_with_retries(self._wire.status)

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    def __enter__(self) -> "JEMClient":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _send_with_retries(self, send: Callable[[float], Any]) -> Any:
        """Return `send(seconds)`, retried with growing pauses while the server is unavailable."""
        deadline = time.monotonic() + self.timeout
        for attempt in range(self.retries + 1):
            try:
                return send(deadline - time.monotonic())
            except WireError as error:
                pause = min(FIRST_PAUSE * 2**attempt, MAX_PAUSE) * random.uniform(0.5, 1.0)
                too_late = time.monotonic() + pause >= deadline
                if error.code != "UNAVAILABLE" or attempt == self.retries or too_late:
                    raise ServingError(error.code, str(error), self.address) from error
                time.sleep(pause)


class AsyncJEMClient:
    """`JEMClient` for coroutines.

    ```python
    async with AsyncJEMClient("localhost:8500", "digits") as client:
        predictions = await client.predict(x)
    ```

    Args:
        address: as for `JEMClient`.
        model: as for `JEMClient`.
        concurrency: requests at a time.
        **options: further arguments of `JEMClient`.
    """

    def __init__(self, address: str, model: str, concurrency: int = 32, **options: Any):
        self.sync = JEMClient(address, model, **options)
        self._threads = ThreadPoolExecutor(concurrency, "jem-client")

    async def predict(self, x: Any) -> Predictions:
        """As `JEMClient.predict`."""
        return await self._run(self.sync.predict, x)

    async def predict_images(self, images: Iterable[bytes | str | Path]) -> Predictions:
        """As `JEMClient.predict_images`."""
        return await self._run(self.sync.predict_images, images)

    async def logits(self, x: Any) -> np.ndarray:
        """As `JEMClient.logits`."""
        return await self._run(self.sync.logits, x)

    async def energy(self, x: Any) -> np.ndarray:
        """As `JEMClient.energy`."""
        return await self._run(self.sync.energy, x)

    async def ood_score(self, x: Any) -> Arrays:
        """As `JEMClient.ood_score`."""
        return await self._run(self.sync.ood_score, x)

    async def sample(self, labels: Sequence[int], seed: int = 0) -> np.ndarray:
        """As `JEMClient.sample`."""
        return await self._run(self.sync.sample, labels, seed)

    async def call(self, signature: str, **inputs: np.ndarray) -> Arrays:
        """As `JEMClient.call`."""
        return await self._run(lambda: self.sync.call(signature, **inputs))

    async def status(self) -> dict[int, str]:
        """As `JEMClient.status`."""
        return await self._run(self.sync.status)

    async def _run(self, method: Callable, *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, method, *arguments)

    async def __aenter__(self) -> "AsyncJEMClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._threads.shutdown(wait=False)
        self.sync.close()


def _to_predictions(outputs: Arrays) -> Predictions:
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
