"""A typed client for models behind TF Serving, or the embedded server.

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
from jem_tf.client.wire import Arrays, Failed, Signature, Wire, objects

SCHEMES = ("grpc", "grpcs", "http", "https")


class ServingError(OSError):
    """A server said no, or nothing: `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str, address: str):
        super().__init__(f"{address} answers {code}: {message}")
        self.code, self.message = code, message


class Predictions(NamedTuple):
    """What a model says about inputs, a row for each."""

    class_id: np.ndarray
    class_name: np.ndarray
    probabilities: np.ndarray  # calibrated, [rows, classes]
    energy: np.ndarray
    ood_score: np.ndarray  # higher: more like the training data
    is_ood: np.ndarray


class JEMClient:
    """Asks a served model.

    ```python
    client = JEMClient("localhost:8500", "digits")             # gRPC; or http://localhost:8501
    found = client.predict(x)
    found.probabilities, found.is_ood
    client.predict_images(["seven.png"]).class_name
    client.call("refine", inputs=x)["refined"]                 # any signature
    ```

    Args:
        address: `host:port` or `grpc://…` (`grpcs://…` with TLS), `http://…`, `https://…`.
        model: its name on the server.
        version: a number, or None for the newest.
        label: or the label of a version.
        timeout: seconds for one request, retries and all.
        retries: how often a request is sent again when the server is not there.
        batch: rows in one request; larger arrays are sent in parts, `parallel` at a time.
        ca, certificate, key: files for TLS: who signed the server's certificate (default: the
            system's authorities), and for servers that want to know clients.
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
        scheme, host = _parsed(address)
        if version is not None and label is not None:
            raise ValueError(f"Give a version or a label. Received: {version!r} and {label!r}")
        if not model or min(batch, parallel) < 1 or timeout <= 0 or retries < 0:
            raise ValueError(
                "`model`, `timeout`, `batch` and `parallel` must be given and positive. Received: "
                f"model={model!r}, timeout={timeout!r}, batch={batch!r}, parallel={parallel!r}, "
                f"retries={retries!r}"
            )
        kind = GrpcWire if scheme.startswith("grpc") else RestWire
        files = {"ca": ca, "certificate": certificate, "key": key}
        secrets = {k: None if v is None else Path(v).read_bytes() for k, v in files.items()}
        self._wire: Wire = kind(scheme, host, model, version, label, secrets)
        self.address, self.model = f"{scheme}://{host}/{model}", model
        self.timeout, self.retries, self.batch, self.parallel = timeout, retries, batch, parallel
        self._signatures: dict[str, Signature] | None = None

    def predict(self, x: Any) -> Predictions:
        """Classes, calibrated probabilities and OOD verdicts of inputs `[rows, …]`."""
        return self._predictions(self.call("serving_default", inputs=np.asarray(x, np.float32)))

    def predict_images(self, images: Iterable[bytes | str | Path]) -> Predictions:
        """The same of PNG or JPEG files, by path or content; the server decodes and scales."""
        contents = [i if isinstance(i, bytes) else Path(i).read_bytes() for i in images]
        return self._predictions(self.call("serving_default_bytes", image_bytes=objects(contents)))

    def logits(self, x: Any) -> np.ndarray:
        return self.call("logits", inputs=np.asarray(x, np.float32))["logits"]

    def energy(self, x: Any) -> np.ndarray:
        return self.call("energy", inputs=np.asarray(x, np.float32))["energy"]

    def ood_score(self, x: Any) -> Arrays:
        """`gradient_norm`, `log_density`, `max_probability`, `percentile`, `is_ood`."""
        return self.call("ood_score", inputs=np.asarray(x, np.float32))

    def sample(self, labels: Sequence[int], seed: int = 0) -> np.ndarray:
        """A sample of each class in `labels`; the same for the same `seed`."""
        seeds = (seed + np.arange(len(labels))).astype(np.int32)
        return self.call("sample", labels=np.asarray(labels, np.int32), seeds=seeds)["samples"]

    def call(self, signature: str, **inputs: np.ndarray) -> Arrays:
        """All outputs of a signature; arrays of more than `batch` rows go in parts."""
        sizes = {len(v) if np.ndim(v) else -1 for v in inputs.values()}
        if len(sizes) != 1 or max(sizes) <= self.batch:
            return self._ask(lambda seconds: self._wire.call(signature, inputs, seconds, self))
        starts = range(0, sizes.pop(), self.batch)
        parts = [{k: v[i : i + self.batch] for k, v in inputs.items()} for i in starts]
        with ThreadPoolExecutor(self.parallel) as pool:
            found = list(pool.map(lambda part: self.call(signature, **part), parts))
        return {name: np.concatenate([part[name] for part in found]) for name in found[0]}

    def signatures(self, again: bool = False) -> dict[str, Signature]:
        """What the model offers; asked for once, or `again`."""
        if self._signatures is None or again:
            self._signatures = self._ask(self._wire.signatures)
        return self._signatures

    def status(self) -> dict[int, str]:
        """The states of the versions, such as `{2: "AVAILABLE"}`."""
        return self._ask(self._wire.status)

    def close(self) -> None:
        self._wire.close()

    def __enter__(self) -> "JEMClient":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _predictions(self, found: Arrays) -> Predictions:
        names = found.get("class_name", found["class_id"].astype(str))  # of other exports
        text = [v.decode() if isinstance(v, bytes) else str(v) for v in names.tolist()]
        others = {k: found[k] for k in Predictions._fields if k != "class_name"}
        return Predictions(class_name=np.array(text), **others)

    def _ask(self, send: Callable[[float], Any]) -> Any:
        """Send, again where nobody is there, each time after a longer pause."""
        deadline = time.monotonic() + self.timeout
        for attempt in range(self.retries + 1):
            try:
                return send(deadline - time.monotonic())
            except Failed as error:
                pause = min(0.1 * 2**attempt, 5.0) * random.uniform(0.5, 1.0)
                late = time.monotonic() + pause >= deadline
                if error.code != "UNAVAILABLE" or attempt == self.retries or late:
                    raise ServingError(error.code, str(error), self.address) from error
                time.sleep(pause)


class AsyncJEMClient:
    """The same for coroutines: `await client.predict(x)`."""

    def __init__(self, address: str, model: str, concurrency: int = 32, **options: Any):
        self.sync = JEMClient(address, model, **options)
        self._threads = ThreadPoolExecutor(concurrency, "jem-client")

    async def predict(self, x: Any) -> Predictions:
        return await self._run(self.sync.predict, x)

    async def predict_images(self, images: Iterable[bytes | str | Path]) -> Predictions:
        return await self._run(self.sync.predict_images, images)

    async def logits(self, x: Any) -> np.ndarray:
        return await self._run(self.sync.logits, x)

    async def energy(self, x: Any) -> np.ndarray:
        return await self._run(self.sync.energy, x)

    async def ood_score(self, x: Any) -> Arrays:
        return await self._run(self.sync.ood_score, x)

    async def sample(self, labels: Sequence[int], seed: int = 0) -> np.ndarray:
        return await self._run(self.sync.sample, labels, seed)

    async def call(self, signature: str, **inputs: np.ndarray) -> Arrays:
        return await self._run(lambda: self.sync.call(signature, **inputs))

    async def status(self) -> dict[int, str]:
        return await self._run(self.sync.status)

    async def _run(self, method: Callable, *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, method, *arguments)

    async def __aenter__(self) -> "AsyncJEMClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._threads.shutdown(wait=False)
        self.sync.close()


def _parsed(address: str) -> tuple[str, str]:
    parsed = urlparse(address if "://" in address else f"grpc://{address}")
    if parsed.scheme not in SCHEMES or not parsed.netloc or parsed.path.strip("/"):
        raise ValueError(
            "An address must be host:port, or grpc://, grpcs://, http:// or https:// before it. "
            f"Received: {address!r}"
        )
    return parsed.scheme, parsed.netloc
