"""log Z of a model, and with it log p(x) in nats.

Not here: the estimate, by annealed importance sampling (`jem_tf/annealing.py`). p(x) is a density
on the box that the data spans: the model has seen no data outside it, and log Z need not exist
there.
Z = integral over the box of exp(logsumexp_y f(x)[y]) dx.
"""

import dataclasses
import math
from typing import Any

import tensorflow as tf

from jem_tf.annealing import LogZ, annealed_log_z

LOG_DENSITY_OUTSIDE = -1e10  # finite, so that zero times it is zero


def log_z(model: Any, chains: int = 100, steps: int = 1000, seed: int = 0) -> LogZ:
    """Estimate log Z of `model`, a `JEM`, over the range of its data.

    `chains` chains move in `steps` Hamiltonian transitions from the uniform density to that of
    the model. The estimate improves with both.
    """
    if not model.input_range.adapted:
        raise ValueError("`log_z` needs the range of the data: call `fit` or `adapt` first.")
    # Chains live in units of half the range of each feature, so that the box is [-1, 1].
    scale, middle = model.input_range.scale, model.input_range.middle
    shape = model.input_range.low.shape
    axes = list(range(1, len(shape) + 1))
    density = model.unit_log_density(None)

    def log_q(unit: tf.Tensor) -> tf.Tensor:
        inside = tf.reduce_all(tf.abs(unit) <= 1.0, axis=axes)
        return tf.where(inside, -math.log(2.0) * shape.num_elements(), LOG_DENSITY_OUTSIDE)

    def log_p(unit: tf.Tensor) -> tf.Tensor:
        inside = tf.reduce_all(tf.abs(unit) <= 1.0, axis=axes)
        return tf.where(inside, density(unit + middle / scale), LOG_DENSITY_OUTSIDE)

    def draw(n: int, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([n, *shape], seed, -1.0, 1.0)

    estimate = annealed_log_z(log_q, log_p, draw, chains, steps, seed)
    log_volume = float(tf.reduce_sum(tf.math.log(tf.broadcast_to(scale, shape))))
    return dataclasses.replace(estimate, value=estimate.value + log_volume)
