"""Functions of the graph over arrays of any length, a batch at a time.

Inside a `tf.function` the same functions take and return tensors, so that signatures can be
exported from them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.checks import check_positive_integer
from jem_tf.data.inputs import is_stream

BATCH_SIZE = 256


def _split(x: Any, batch_size: int) -> Iterator[Any]:
    """Rows of an array, or of each array that a stream yields, at most `batch_size` at a time."""
    for part in x if is_stream(x) else [x]:
        rows = part if hasattr(part, "shape") else np.asarray(part)
        for begin in range(0, max(len(rows), 1), batch_size):
            yield rows[begin : begin + batch_size]


class BatchedCalls:
    """Traces each function once, and calls it batch by batch."""

    def __init__(self) -> None:
        self._traced: dict[str, Any] = {}

    def clear(self) -> None:
        """Forget all traces, after variables that they read were replaced."""
        self._traced.clear()

    def __call__(
        self,
        name: str,
        function: Callable[..., tf.Tensor],
        x: Any,
        batch_size: int,
        labels: np.ndarray | None = None,
        seed: int | None = None,
    ) -> Any:
        """`function(x, labels, seed)` over all rows of `x`; each batch has its own seed.

        `name` tells functions apart: the first function of a name is traced, and used from then on.
        """
        if not tf.executing_eagerly():
            return function(x, labels, None if seed is None else tf.constant([seed, 0]))
        check_positive_integer("batch_size", batch_size)
        outputs, begin = [], 0
        for index, rows in enumerate(_split(x, batch_size)):
            arguments = [tf.cast(np.asarray(rows), tf.float32)]
            arguments += [] if labels is None else [tf.constant(labels[begin : begin + len(rows)])]
            begin += len(rows)
            arguments += [] if seed is None else [tf.constant([seed, index])]
            traced = self._trace(name, function, arguments, labels is not None, seed is not None)
            outputs.append(traced(*arguments).numpy())
        return np.concatenate(outputs)

    def _trace(
        self,
        name: str,
        function: Callable[..., tf.Tensor],
        arguments: list[tf.Tensor],
        has_labels: bool,
        has_seed: bool,
    ) -> Any:
        key = f"{name} {has_labels} {has_seed} {arguments[0].shape[1:]}"
        if key not in self._traced:
            specs = [tf.TensorSpec([None, *arguments[0].shape[1:]], tf.float32)]
            specs += [tf.TensorSpec([None], arguments[1].dtype)] if has_labels else []
            specs += [tf.TensorSpec([2], tf.int32)] if has_seed else []

            def call(x: tf.Tensor, *rest: tf.Tensor) -> tf.Tensor:
                labels, *seeds = rest if has_labels else (None, *rest)
                return function(x, labels, *(seeds or [None]))

            # A concrete function: TensorFlow counts the first calls of `tf.function`s from one
            # line of code together, and warns that they are traced too often.
            self._traced[key] = tf.function(call, autograph=False).get_concrete_function(*specs)
        return self._traced[key]
