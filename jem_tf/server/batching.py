"""Batching: requests that wait for a signature run as one call of it.

Not here: the settings (`configuration.py`), splitting of large requests (`servable.py`).

While a batch runs, further requests arrive; they are the next batch. So batches are as large as the
load asks for, without a timeout, and no thread waits for a request.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from jem_tf.server.errors import RequestError

Arrays = dict[str, np.ndarray]


class Rows(NamedTuple):
    """The inputs of a request that waits, and what it waits for."""

    inputs: Arrays
    size: int
    outputs: "Future[Arrays]"

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

    def submit(self, inputs: Arrays) -> "Future[Arrays]":
        """Return a future of the outputs; raise `RequestError` if too many rows wait."""
        rows = Rows(inputs, len(next(iter(inputs.values()))), Future())
        size = self._batching.max_batch_size
        with self._changed:
            if self._num_waiting + rows.size > size * self._batching.max_enqueued:
                raise RequestError(
                    "RESOURCE_EXHAUSTED",
                    f"The batch queue is full: {self._num_waiting} rows wait.",
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
                for rows in batch:
                    rows.outputs.set_exception(error)
                continue
            for rows, outputs in zip(batch, results):
                rows.outputs.set_result(outputs)

    def _take(self) -> list[Rows]:
        """Return the next batch; an empty one ends this thread."""
        size = self._batching.max_batch_size
        end = time.monotonic() + self._batching.timeout_micros / 1e6
        with self._changed:
            while 0 < self._num_waiting < size and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            batch: list[Rows] = []
            while self._waiting:
                rows = self._waiting[0]
                if batch and (rows.size > size or not rows.fits(batch[0])):
                    break
                size -= rows.size
                batch.append(self._waiting.popleft())
                self._num_waiting -= rows.size
            self._num_threads -= not batch
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
        if any(len(value) != padded for value in outputs.values()):
            raise ValueError("An output does not have a row for each row of the inputs.")
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
