"""Batching: requests that wait for a signature run as one call of it.

Not here: the settings (`configuration.py`), splitting of large requests (`servable.py`).

While a batch runs, further requests arrive; they are the next batch. So batches are as large as the
load asks for, without a timeout. Requests whose deadline passes while they wait are left out.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from jem_tf.server import limits
from jem_tf.server.errors import RequestError

Arrays = dict[str, np.ndarray]
log = logging.getLogger("jem_tf.server")


class Rows(NamedTuple):
    """The inputs of a request that waits, and what it waits for."""

    inputs: Arrays
    size: int
    outputs: "Future[Arrays]"
    arrived: float  # by the monotonic clock
    call: limits.Call | None

    def fits(self, other: "Rows") -> bool:
        """Return whether the inputs of both can be concatenated."""
        return all(v.shape[1:] == other.inputs[k].shape[1:] for k, v in self.inputs.items())


class BatchedFunction:
    """A signature whose concurrent calls run together; thread-safe.

    ```python
    batched = BatchedFunction(run, Batching())
    batched.submit({"inputs": x}).result()["logits"]
    ```

    One thread runs the batches. Another one begins as soon as a full batch waits.

    Args:
        run: returns the outputs for inputs; all have the same number of rows.
        batching: the settings, a `configuration.Batching`.
    """

    def __init__(self, run: Callable[[Arrays], Arrays], batching: Any):
        self._run, self._batching = run, batching
        self._threads = ThreadPoolExecutor(batching.threads, "batches")
        self._changed = threading.Condition()  # guards what follows
        self._waiting: deque[Rows] = deque()
        self._num_waiting, self._num_threads = 0, 0
        self.runs, self.rows = 0, 0
        self._warned = False

    def submit(self, inputs: Arrays) -> "Future[Arrays]":
        """Return a future of the outputs; raise `RequestError` if too many rows wait."""
        count, call = len(next(iter(inputs.values()))), limits.current()
        rows = Rows(inputs, count, Future(), time.monotonic(), call)
        size = self._batching.max_batch_size
        with self._changed:
            most = size * self._batching.max_enqueued
            if self._num_waiting + rows.size > most:
                raise RequestError(
                    "RESOURCE_EXHAUSTED",
                    f"The batch queue is full: {self._num_waiting} of at most {most} rows wait, "
                    f"and {rows.size} came. Try again later.",
                )
            self._waiting.append(rows)
            self._num_waiting += rows.size
            full = self._num_waiting >= size and self._num_threads < self._batching.threads
            begin = full or not self._num_threads
            self._num_threads += begin
            self._changed.notify_all()
        if begin:
            self._threads.submit(self._run_batches)
        return rows.outputs

    def _run_batches(self) -> None:
        while batch := self._take():
            try:
                results = self._run_batch(batch)
            except Exception as error:
                if isinstance(error, ValueError) and not self._warned:
                    log.warning("requests are not batched: %s", error)
                    self._warned = True
                for rows in batch:
                    rows.outputs.set_exception(error)
                continue
            for rows, outputs in zip(batch, results):
                rows.outputs.set_result(outputs)

    def _take(self) -> list[Rows]:
        """Return the next batch; an empty one ends this thread."""
        free, timeout = self._batching.max_batch_size, self._batching.timeout_micros / 1e6
        batch: list[Rows] = []
        expired: list[Rows] = []
        with self._changed:
            while 0 < self._num_waiting < free and (
                (left := self._waiting[0].arrived + timeout - time.monotonic()) > 0
            ):
                self._changed.wait(left)
            while self._waiting:
                rows = self._waiting[0]
                late = rows.call is not None and rows.call.expired
                if batch and not late and (rows.size > free or not rows.fits(batch[0])):
                    break
                (expired if late else batch).append(self._waiting.popleft())
                self._num_waiting -= rows.size
                free -= 0 if late else rows.size
            self._num_threads -= not batch
        for rows in expired:
            rows.outputs.set_exception(RequestError("DEADLINE_EXCEEDED", "Deadline Exceeded"))
        return batch

    def _run_batch(self, batch: list[Rows]) -> list[Arrays]:
        """Return the outputs of each request."""
        count = sum(rows.size for rows in batch)
        padded = next((n for n in self._batching.allowed_sizes if n >= count), count)
        inputs = {}
        for key in batch[0].inputs:
            parts = [rows.inputs[key] for rows in batch]
            parts += [parts[-1][-1:]] * (padded - count)
            inputs[key] = np.concatenate(parts) if len(parts) > 1 else parts[0]
        outputs = self._run(inputs)
        for key, value in outputs.items():
            if len(value) != padded:
                raise ValueError(
                    f"Output {key!r} must have {padded} rows, as the inputs. Received: {len(value)}"
                )
        with self._changed:
            self.runs += 1
            self.rows += padded
        ends = np.cumsum([rows.size for rows in batch])
        return [
            {key: value[end - rows.size : end] for key, value in outputs.items()}
            for rows, end in zip(batch, ends)
        ]

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False)

    def reset_counts(self) -> None:
        """Set the numbers of runs and rows to zero."""
        self.runs, self.rows = 0, 0


def can_batch(definition: Any) -> bool:
    """Return whether every input and output of a `SignatureDef` has a free first dimension."""
    infos = [*definition.inputs.values(), *definition.outputs.values()]
    return bool(definition.inputs) and all(
        not i.tensor_shape.unknown_rank and i.tensor_shape.dim and i.tensor_shape.dim[0].size == -1
        for i in infos
    )
