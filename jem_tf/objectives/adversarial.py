"""Robust cross-entropy: the worst points near the data, by a few steps of gradient ascent.

Not here: attacks that measure robustness (`evaluation/measures/`).
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.objectives.base import TrainingModel


def worst_points(
    model: TrainingModel, x: tf.Tensor, targets: tf.Tensor, radius: float, steps: int
) -> tf.Tensor:
    """Search the points within `radius` of the rows of `x` where their labels are least likely.

    `radius` is an L2 distance, in half ranges, for an input with one value; for D values it is
    sqrt(D) times that.
    """
    if radius == 0:
        return x
    scale = model.input_range.scale

    def cross_entropy(unit: tf.Tensor) -> tf.Tensor:
        log_p = maths.conditional_log_probability(model.logits_in_shares(unit * scale))
        return -tf.reduce_sum(targets * log_p, axis=-1)

    start = x / scale
    change = ascend(cross_entropy, start, steps, 1.5 * radius / steps) - start
    limit = radius * _root_of_dimensions(start)
    factor = tf.minimum(1.0, limit / tf.maximum(_length(change), 1e-12))
    return tf.stop_gradient((start + change * factor) * scale)


def ascend(
    function: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor, steps: Any, size: float
) -> tf.Tensor:
    """Take `steps` of length `size` times sqrt(D) uphill; none where the gradient is zero."""
    length = size * _root_of_dimensions(x)

    def step(index: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        direction = maths.gradient(function, x)
        return index + 1, x + length * direction / tf.maximum(_length(direction), 1e-12)

    _, x = tf.while_loop(
        lambda index, _: index < steps, step, (tf.constant(0), x), parallel_iterations=1
    )
    return tf.stop_gradient(x)


def _length(x: tf.Tensor) -> tf.Tensor:
    """The length of each row, in a shape that broadcasts over `x`."""
    axes = list(range(1, len(x.shape)))
    return tf.sqrt(tf.reduce_sum(x**2, axis=axes, keepdims=True))


def _root_of_dimensions(x: tf.Tensor) -> tf.Tensor:
    """sqrt(D) for rows of D values."""
    return tf.sqrt(tf.cast(tf.reduce_prod(tf.shape(x)[1:]), tf.float32))
