"""Counting the entries of sorted tables that are at most a value.

Not here: what the counts mean (`fusion.py`, `conformal.py`).
"""

import tensorflow as tf

from jem_tf.portable import is_portable


def count_at_most(table: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """How many entries of each row of a sorted `table` `[s, m]` are at most `values` `[s, n]`."""
    if is_portable():  # LiteRT cannot search; comparing is slower for large batches
        return tf.reduce_sum(tf.cast(table[:, tf.newaxis] <= values[:, :, tf.newaxis], tf.int32), 2)
    return tf.searchsorted(table, values, side="right")
