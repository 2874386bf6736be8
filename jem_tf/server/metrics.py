"""Metrics for Prometheus: TF Serving's names, and the share of inputs that are OOD.

Not here: the HTTP path of the metrics (`rest_api.py`).
"""

import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric, UnknownMetricFamily
from prometheus_client.registry import Collector

from jem_tf.drift import DriftMonitor

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTED_APIS = {"Predict", "Classify", "Regress", "predict", "classify", "regress"}
COUNTED_APIS |= {"ModelInfer", "infer"}  # of V2
_MICROSECONDS_BUCKETS = [10 * 1.8**i for i in range(33)]
DRIFT_ROWS = 50  # fewer than detectors have: only their own file says how many
MAX_WAITING = 256  # responses that drift has not been looked for in
MAX_DRIFT_INPUTS = 64  # of a response, so that watching takes little time
_ROWS_BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


class LabelledValues(Collector):
    """A counter, whose values only grow, or a gauge.

    TF Serving's counters lack the suffix `_total`, which prometheus-client adds to a `Counter`.
    Hence counters are collected as "untyped", and `Metrics.render` names their type.

    ```python
    requests = LabelledValues("request_count", "Requests.", ["model_name"], registry)
    requests.increment(("digits",))
    ```
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
        is_gauge: bool = False,
    ):
        self._name, self._documentation, self._label_names = name, documentation, labels
        self._family = GaugeMetricFamily if is_gauge else UnknownMetricFamily
        self._values: dict[tuple[str, ...], float] = {}
        self._lock = threading.Lock()
        registry.register(self)

    def increment(self, labels: tuple[str, ...], amount: float = 1.0) -> None:
        """Add `amount` to the value with these labels, which starts at 0."""
        with self._lock:
            self._values[labels] = self._values.get(labels, 0.0) + amount

    def set(self, labels: tuple[str, ...], value: float) -> None:
        """Set the value with these labels."""
        with self._lock:
            self._values[labels] = value

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()

    def values(self) -> dict[tuple[str, ...], float]:
        """Return a copy of the values by their labels."""
        with self._lock:
            return dict(self._values)

    def collect(self) -> Iterable[Metric]:
        """Yield the metric for the registry."""
        family = self._family(self._name, self._documentation, labels=self._label_names)
        for labels, value in self.values().items():
            family.add_metric(labels, value)
        yield family


class Metrics:
    """The metrics of one server.

    ```python
    with metrics.request("digits", "Predict", "GRPC"): ...
    metrics.record_response("digits", "ood_score", len(x), results)
    metrics.render(manager.servables())  # the page for Prometheus
    ```
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        by_signature = ["model_name", "signature_name"]

        def counter(name: str, documentation: str, labels: Sequence[str]) -> LabelledValues:
            return LabelledValues(name, documentation, labels, registry)

        def gauge(name: str, documentation: str, labels: Sequence[str]) -> LabelledValues:
            return LabelledValues(name, documentation, labels, registry, is_gauge=True)

        self._requests = counter(
            ":tensorflow:serving:request_count", "Requests.", ["model_name", "status"]
        )
        self._latency = Histogram(
            ":tensorflow:serving:request_latency",
            "Wall time of requests that were answered, in microseconds.",
            ["model_name", "API", "entrypoint"],
            buckets=_MICROSECONDS_BUCKETS,
            registry=registry,
        )
        self._rows = Histogram(
            "jem_tf:request_rows",
            "Rows in a request.",
            by_signature,
            buckets=_ROWS_BUCKETS,
            registry=registry,
        )
        self._executed = counter("jem_tf:executed_batches", "Runs of the graph.", by_signature)
        self._executed_rows = counter("jem_tf:executed_rows", "Rows in them.", by_signature)
        self._scored = counter("jem_tf:scored_rows", "Rows with an OOD verdict.", by_signature)
        self._ood = counter("jem_tf:ood_rows", "Rows out of distribution.", by_signature)
        self._ood_rate = gauge(
            "jem_tf:ood_rate", "Share of rows out of distribution.", by_signature
        )
        self._drift_alarms = counter(
            "jem_tf:drift_alarms", "Alarms that the inputs have drifted.", by_signature
        )
        self._drift_evidence = gauge(
            "jem_tf:drift_evidence", "Evidence of drift: an alarm is raised at 6.", by_signature
        )
        self._monitors: dict[tuple[str, str], DriftMonitor] = {}
        self._monitors_lock = threading.Lock()
        self._waiting: deque[tuple[tuple[str, str], np.ndarray]] = deque()  # for the monitors
        self._versions = gauge(
            "jem_tf:available_version", "Newest version that answers.", ["model_name"]
        )

    @contextmanager
    def request(self, model: str, api: str, entrypoint: str) -> Iterator[None]:
        """Count the request of a `with` block by its status, and time it if it succeeds.

        As in TF Serving, only requests for inference on one signature are counted.
        """
        if api not in COUNTED_APIS:
            yield
            return
        start, status = time.perf_counter(), "OK"
        try:
            yield
        except BaseException as error:
            status = getattr(error, "code", "INTERNAL")
            raise
        finally:
            micros = 1e6 * (time.perf_counter() - start)
            self._requests.increment((model, status if isinstance(status, str) else "UNKNOWN"))
            if status == "OK":
                self._latency.labels(model, api, entrypoint).observe(micros)

    def record_response(
        self, model: str, signature: str, rows: int, results: dict[str, Any]
    ) -> None:
        """Count the rows of a response and its OOD verdicts, and watch its p-values for drift."""
        self._rows.labels(model, signature).observe(rows)
        verdicts = results.get("is_ood")
        if verdicts is None or verdicts.dtype != bool:
            return
        self._scored.increment((model, signature), verdicts.size)
        self._ood.increment((model, signature), int(verdicts.sum()))
        percentiles = results.get("percentile")
        if percentiles is not None and not np.isnan(percentiles).all():
            p_values = np.asarray(percentiles[:MAX_DRIFT_INPUTS]) / 100.0
            self._waiting.append(((model, signature), p_values))
            if len(self._waiting) > MAX_WAITING:
                self._watch_for_drift()

    def _watch_for_drift(self) -> None:
        """Give the monitors the p-values that wait: requests do not wait for each other here."""
        with self._monitors_lock:
            found: dict[tuple[str, str], list[np.ndarray]] = {}
            for _ in range(len(self._waiting)):
                labels, p_values = self._waiting.popleft()
                found.setdefault(labels, []).append(p_values)
            for labels, parts in found.items():
                monitor = self._monitors.setdefault(labels, DriftMonitor(DRIFT_ROWS))
                monitor.update(np.concatenate(parts))
                self._drift_alarms.set(labels, monitor.alarms)
                self._drift_evidence.set(labels, max(monitor.evidence, 0.0))

    def render(self, servables: list[Any]) -> bytes:
        """Return the page that Prometheus reads, with the batches that `servables` ran."""
        self._watch_for_drift()
        self._versions.clear()
        for servable in servables:
            self._versions.set((servable.name,), servable.version)
            for signature, (runs, rows) in servable.executed().items():
                self._executed.set((servable.name, signature), runs)
                self._executed_rows.set((servable.name, signature), rows)
        ood = self._ood.values()
        for labels, scored in self._scored.values().items():
            self._ood_rate.set(labels, ood.get(labels, 0.0) / max(scored, 1.0))
        page = generate_latest(self._registry)
        return re.sub(rb"^(# TYPE \S+) untyped$", rb"\1 counter", page, flags=re.MULTILINE)
