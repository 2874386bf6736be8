"""What a server counts, for Prometheus: TF Serving's names, and the share of inputs that are OOD.

Not here: where it is asked for (`rest_api.py`).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MICROSECONDS = [10 * 1.8**i for i in range(33)]
_ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


class _Count(Gauge):
    """A counter without the suffix `_total`, which TF Serving's have not."""

    _type = "unknown"


class Metrics:
    """The numbers of one server.

    ```python
    with metrics.request("digits", "Predict", "GRPC"): ...
    metrics.answered("digits", "ood_score", results)
    ```
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        both = ["model_name", "signature_name"]
        self._requests = self._count(
            ":tensorflow:serving:request_count", "Requests.", ["model_name", "status"]
        )
        self._latency = Histogram(
            ":tensorflow:serving:request_latency",
            "Wall time of requests that were answered, in microseconds.",
            ["model_name", "API", "entrypoint"],
            buckets=_MICROSECONDS,
            registry=self._registry,
        )
        self._rows = Histogram(
            "jem_tf:request_rows",
            "Rows in a request.",
            both,
            buckets=_ROWS,
            registry=self._registry,
        )
        self._executed = self._count("jem_tf:executed_batches", "Runs of the graph.", both)
        self._executed_rows = self._count("jem_tf:executed_rows", "Rows in them.", both)
        self._scored = self._count("jem_tf:scored_rows", "Rows with an OOD verdict.", both)
        self._ood = self._count("jem_tf:ood_rows", "Rows out of distribution.", both)
        self._rate = self._count("jem_tf:ood_rate", "Share of rows out of distribution.", both)
        self._versions = self._count(
            "jem_tf:available_version", "Newest version that answers.", ["model_name"]
        )

    def _count(self, name: str, about: str, labels: list[str]) -> Gauge:
        return _Count(name, about, labels, registry=self._registry)

    @contextmanager
    def request(self, model: str, api: str, entrypoint: str) -> Iterator[None]:
        """Count and time a request, whatever becomes of it."""
        begin, status = time.perf_counter(), "OK"
        try:
            yield
        except BaseException as error:
            status = getattr(error, "code", "INTERNAL")
            raise
        finally:
            micros = 1e6 * (time.perf_counter() - begin)
            self._requests.labels(model, status if isinstance(status, str) else "UNKNOWN").inc()
            if status == "OK":
                self._latency.labels(model, api, entrypoint).observe(micros)

    def answered(self, model: str, signature: str, rows: int, results: dict[str, Any]) -> None:
        """Count the rows of an answer, and its verdicts."""
        self._rows.labels(model, signature).observe(rows)
        verdicts = results.get("is_ood")
        if verdicts is None or verdicts.dtype != bool:
            return
        self._scored.labels(model, signature).inc(verdicts.size)
        self._ood.labels(model, signature).inc(int(verdicts.sum()))

    def render(self, servables: list[Any]) -> bytes:
        """The page that Prometheus reads, with what `servables` have run."""
        self._versions.clear()
        for servable in servables:
            self._versions.labels(servable.name).set(servable.version)
            for signature, (runs, rows) in servable.executed().items():
                self._executed.labels(servable.name, signature).set(runs)
                self._executed_rows.labels(servable.name, signature).set(rows)
        for metric in self._scored.collect():
            for sample in metric.samples:
                labels = (sample.labels["model_name"], sample.labels["signature_name"])
                share = self._ood.labels(*labels)._value.get() / max(sample.value, 1.0)
                self._rate.labels(*labels).set(share)
        return generate_latest(self._registry)
