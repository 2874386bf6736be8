"""The vital signs of a training, kept in the graph, and updates that are always finite.

Not here: what to do about them (`callbacks/guard.py`).
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.state import components, sum_replicas

VITALS = (
    "gap",  # log density of the samples less that of the data, in nats
    "trusted",  # share of the samples that count in the loss
    "climbing",  # share of chains that end above their start
    "displacement",  # how far they move in a training step, a value, in half ranges of the data
    "extent",  # root mean square of the samples, in half ranges from the middle of the data's
    "gradient_norm",
    "cross_entropy",
)
WINDOW = 50.0  # steps over which they are averaged


class Watching(keras.Model):
    """What `JEM` knows about its own health."""

    progress: Any
    start: Any

    def vitals(self) -> dict[str, float]:
        """Means over about the last 50 training steps."""
        values = components(self.progress["vitals"])[0].numpy()
        return dict(zip(VITALS, values.tolist()))

    def forget_vitals(self) -> None:
        """Begin the means anew."""
        self.progress.assign(vitals=np.zeros(len(VITALS), np.float32), watched=np.float32(0))

    def _finite(self, gradients: list[Any]) -> tuple[list[Any], tf.Tensor]:
        """`gradients`, and their norm; zeros if one of them, on any replica, is not finite."""
        squares = tf.square(tf.linalg.global_norm([g for g in gradients if g is not None]))
        norm = tf.sqrt(sum_replicas(squares))
        fine = tf.math.is_finite(norm)
        self.progress["skipped"].assign_add(tf.cast(~fine, tf.int64))
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            return gradients, norm  # which has to see them, and leaves such steps out itself
        zero = [g if g is None else tf.where(fine, g, tf.zeros_like(g)) for g in gradients]
        return zero, norm

    def watch(self, samples: tf.Tensor, **values: tf.Tensor) -> None:
        """Take the vital signs of a step into the means."""
        low, high = self.start["low"], self.start["high"]
        unit = (samples - (low + high) / 2.0) / self.start.scale
        squares, count = tf.unstack(
            sum_replicas(tf.stack([tf.reduce_sum(unit**2), tf.cast(tf.size(unit), tf.float32)]))
        )
        values["extent"] = tf.sqrt(tf.math.divide_no_nan(squares, count))
        now = tf.stack([tf.cast(values.get(name, 1.0), tf.float32) for name in VITALS])
        vitals, watched = self.progress["vitals"], self.progress["watched"]
        rate = 1.0 / tf.minimum(watched + 1.0, WINDOW)
        vitals.assign(tf.where(tf.math.is_finite(now), vitals + rate * (now - vitals), vitals))
        watched.assign_add(1.0)
