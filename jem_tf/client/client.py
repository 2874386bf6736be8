"""A typed client for models behind TF Serving or the embedded server.

Not here: arguments and predictions (`base.py`), coroutines (`async_client.py`).
"""

import itertools
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from jem_tf.client.base import (
    ClientBase,
    Predictions,
    as_inputs,
    concatenate,
    read_images,
    sample_inputs,
    to_predictions,
)
from jem_tf.client.wire import Arrays, Exchange, Signature, StaleSignaturesError, WireError


class JEMClient(ClientBase):
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
        retries: how often a request is sent again if the server is unavailable; over gRPC, which
            retries by itself, at most 4 times.
        batch: rows per request; larger arrays are split, and `parallel` parts are sent at a time.
        ca: PEM file of the authority that signed the server's certificate; default: the system's.
        certificate: PEM file of the client's own certificate.
        key: PEM file of the client's own key.
        token: bearer token that the server asks for.
    """

    def predict(self, x: Any) -> Predictions:
        """Return classes, calibrated probabilities and OOD verdicts of inputs `[rows, …]`."""
        return to_predictions(self.call("serving_default", inputs=as_inputs(x)))

    def predict_images(self, images: Iterable[bytes | str | Path]) -> Predictions:
        """Return the predictions for PNG or JPEG files, given as paths or contents.

        The server decodes, resizes and scales them.
        """
        outputs = self.call("serving_default_bytes", image_bytes=read_images(images))
        return to_predictions(outputs)

    def logits(self, x: Any) -> np.ndarray:
        """Return the logits `[rows, classes]` of inputs `[rows, …]`."""
        return self.call("logits", inputs=as_inputs(x))["logits"]

    def energy(self, x: Any) -> np.ndarray:
        """Return the energy `[rows]` of inputs `[rows, …]`."""
        return self.call("energy", inputs=as_inputs(x))["energy"]

    def ood_score(self, x: Any) -> Arrays:
        """Return every statistic by name, `fused`, `percentile` and `is_ood`."""
        return self.call("ood_score", inputs=as_inputs(x))

    def sample(self, labels: Sequence[int], seed: int = 0) -> np.ndarray:
        """Return one sample per class in `labels`; the same `seed` gives the same samples."""
        return self.call("sample", **sample_inputs(labels, seed))["samples"]

    def call(self, signature: str, **inputs: np.ndarray) -> Arrays:
        """Return all outputs of a signature; arrays of more than `batch` rows are split."""
        parts = self._split(inputs)
        if len(parts) == 1:
            return self._call(signature, inputs)
        with ThreadPoolExecutor(self.parallel) as pool:
            return concatenate(list(pool.map(lambda part: self._call(signature, part), parts)))

    def _call(self, signature: str, inputs: Arrays) -> Arrays:
        signatures = self.signatures() if self._wire.needs_signatures else {}
        exchange = self._wire.call(signature, inputs)
        response = self._send(exchange)
        try:
            return exchange.parse(response, signatures)
        except StaleSignaturesError:
            return exchange.parse(response, self.signatures(refresh=True))

    def signatures(self, refresh: bool = False) -> dict[str, Signature]:
        """Return the signatures of the model; cached unless `refresh`."""
        if self._signatures is None or refresh:
            exchange = self._wire.signatures()
            self._signatures = exchange.parse(self._send(exchange))
        return self._signatures

    def status(self) -> dict[int, str]:
        """Return the state of each version, such as `{2: "AVAILABLE"}`."""
        exchange = self._wire.status()
        return exchange.parse(self._send(exchange))

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    def __enter__(self) -> "JEMClient":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _send(self, exchange: Exchange) -> Any:
        """Return the response, for which requests are sent until the server is available."""
        deadline = time.monotonic() + self.timeout
        for attempt in itertools.count():
            try:
                return self._wire.send(exchange.request, deadline - time.monotonic())
            except WireError as error:
                time.sleep(self._pause(error, attempt, deadline))
