"""Counting the entries of sorted tables that are at most a value.

Not here: what the counts mean (`fusion.py`, `conformal.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import tensorflow as tf

_PORTABLE = ContextVar("portable", default=False)


@contextmanager
def portable() -> Iterator[None]:
    """Trace graphs with operators that LiteRT has: it cannot search, and compares instead, which
    is slower for large batches."""
    token = _PORTABLE.set(True)
    try:
        yield
    finally:
        _PORTABLE.reset(token)


def count_at_most(table: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """How many entries of each row of a sorted `table` `[s, m]` are at most `values` `[s, n]`."""
    if _PORTABLE.get():
        return tf.reduce_sum(tf.cast(table[:, tf.newaxis] <= values[:, :, tf.newaxis], tf.int32), 2)
    return tf.searchsorted(table, values, side="right")
