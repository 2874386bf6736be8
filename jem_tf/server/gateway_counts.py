"""The OOD verdicts in responses that a gateway forwards.

Not here: forwarding (`gateway.py`). Everything here takes time and memory, so it runs in a thread,
within the limits of the current call.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow_serving.apis import predict_pb2

from jem_tf.server import bodies, json_documents, limits, message_size, metrics, tensor_protos
from jem_tf.server.servable import DEFAULT_SIGNATURE

log = logging.getLogger("jem_tf.gateway")
COUNTED: dict[str, type] = {"is_ood": bool, "percentile": float}  # outputs, and their types
MAX_SERIES = 1000  # pairs of model and signature in the metrics


class VerdictCounter:
    """Counts the verdicts of responses in its `metrics`; logs what it cannot read.

    ```python
    counter = VerdictCounter(max_bytes=2**26)
    counter.count_rest("digits", request, gzipped=False, response=response)
    counter.metrics.render([])
    ```
    """

    def __init__(self, max_bytes: int):
        self.metrics, self._max_bytes = metrics.Metrics(), max_bytes
        self._series: set[tuple[str, str]] = set()

    def count_grpc(self, response: bytes) -> None:
        """Count the verdicts of a serialised `PredictResponse`."""
        self._try(self._count_grpc, response)

    def count_rest(self, model: str, request: bytes, gzipped: bool, response: bytes) -> None:
        """Count the verdicts of the response to a predict request."""
        self._try(self._count_rest, model, request, gzipped, response)

    def _try(self, count: Callable[..., None], *arguments: Any) -> None:
        try:
            count(*arguments)
        except Exception as error:  # the response is forwarded all the same
            log.warning("a response was not counted: %r", error)

    def _count_grpc(self, message: bytes) -> None:
        if b"is_ood" not in message:
            return
        size = message_size.parsed_bytes(message, predict_pb2.PredictResponse.DESCRIPTOR)
        limits.reserve(size, "The parsed response")
        response = predict_pb2.PredictResponse.FromString(message)
        outputs = {k: v for k, v in response.outputs.items() if k in COUNTED}
        arrays = tensor_protos.to_arrays(outputs, self._max_bytes)
        self._count(response.model_spec.name, response.model_spec.signature_name, arrays)

    def _count_rest(self, model: str, request: bytes, gzipped: bool, response: bytes) -> None:
        content = bodies.gunzip(request, self._max_bytes) if gzipped else request
        signature = json_documents.loads(content).get("signature_name", "")
        answer = json_documents.loads(response)
        columns = answer.get("outputs") or {
            name: [row[name] for row in answer["predictions"]]
            for name in COUNTED
            if name in answer["predictions"][0]
        }
        arrays: dict[str, np.ndarray] = {
            k: np.asarray(columns[k], v) for k, v in COUNTED.items() if k in columns
        }
        self._count(model, signature, arrays)

    def _count(self, model: str, signature: str, arrays: dict[str, np.ndarray]) -> None:
        labels = (model, signature or DEFAULT_SIGNATURE)
        if labels not in self._series and len(self._series) >= MAX_SERIES:
            raise ValueError(f"the metrics already have {MAX_SERIES} models and signatures")
        self._series.add(labels)
        self.metrics.record_response(*labels, arrays["is_ood"].size, arrays)
