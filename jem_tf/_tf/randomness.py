"""Random numbers as pure functions of a seed: one seed for all rows, or one for each row.

With a seed for each row, the numbers of a row do not depend on the rest of its batch, as a server
that batches requests needs.
"""

from typing import Any

import tensorflow as tf


def fold_in(seed: tf.Tensor, data: Any) -> tf.Tensor:
    """A new seed from `seed` `[2]` or `[n, 2]` and the integer `data`."""
    if seed.shape.rank == 1:
        return tf.random.experimental.stateless_fold_in(seed, data)
    return tf.stack([seed[:, 0], seed[:, 1] * 65_537 + tf.cast(data, seed.dtype) + 1], axis=1)


def normal(shape: Any, seed: tf.Tensor) -> tf.Tensor:
    """Standard normal numbers of `shape`, with rows on the first axis."""
    return _rows(tf.random.stateless_normal, shape, seed)


def uniform(shape: Any, seed: tf.Tensor) -> tf.Tensor:
    """Uniform numbers in [0, 1) of `shape`, with rows on the first axis."""
    return _rows(tf.random.stateless_uniform, shape, seed)


def _rows(draw: Any, shape: Any, seed: tf.Tensor) -> tf.Tensor:
    seed = tf.convert_to_tensor(seed)
    if seed.shape.rank == 1:
        return draw(shape, seed)
    row = tf.convert_to_tensor(shape)[1:]
    return tf.map_fn(lambda one: draw(row, one), seed, fn_output_signature=tf.float32)
