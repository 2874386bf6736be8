"""The vital signs of a training, kept in the graph, and updates that are always finite.

Not here: what to do about them (`callbacks/guard.py`).
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.replicas import sum_over_replicas
from jem_tf._tf.state import State, replica_components
from jem_tf.sampling import InputRange

VITALS = (
    "gap",  # log density of the samples less that of the data
    "relative_gap",  # the same, in standard deviations of the log density over the data
    "trusted",  # mean weight of the samples in the loss, between 0 and 1
    "acceptance",  # mean acceptance probability of sampler steps as Metropolis-Hastings proposals
    "displacement",  # root mean square change of a value in a training step, in half ranges
    "extent",  # root mean square of the samples, in half ranges from the middle of the range
    "gradient_norm",
    "cross_entropy",
)
WINDOW = 50.0  # steps over which they are averaged


class Health:
    """The vital signs of a model in training.

    ```python
    model.health.vitals()["trusted"]  # mean over about the last 50 training steps
    ```

    Args:
        progress: where the means are kept, so that they are saved with the model.
        input_range: the range of the inputs.
    """

    def __init__(self, progress: State, input_range: InputRange):
        self._progress, self._input_range = progress, input_range
        progress.assign(skipped=np.int64(0))  # steps with non-finite gradients, not applied
        self.reset()

    def vitals(self) -> dict[str, float]:
        """Means over about the last 50 training steps."""
        values = replica_components(self._progress["vitals"])[0].numpy()
        return dict(zip(VITALS, values.tolist()))

    @property
    def steps(self) -> int:
        """Training steps since the last reset."""
        return int(self._progress.number("watched"))

    def reset(self) -> None:
        """Restart the means."""
        self._progress.assign(vitals=np.zeros(len(VITALS), np.float32), watched=np.float32(0))

    def make_finite(
        self, gradients: list[Any], optimizer: keras.optimizers.Optimizer
    ) -> tuple[list[Any], tf.Tensor]:
        """Return `gradients` and their norm; zeros if any gradient on any replica is non-finite."""
        squares = tf.square(tf.linalg.global_norm([g for g in gradients if g is not None]))
        norm = tf.sqrt(sum_over_replicas(squares))
        finite = tf.math.is_finite(norm)
        self._progress["skipped"].assign_add(tf.cast(~finite, tf.int64))
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            return gradients, norm  # it must see non-finite gradients, and skips the step itself
        zeroed = [g if g is None else tf.where(finite, g, tf.zeros_like(g)) for g in gradients]
        return zeroed, norm

    def record(self, samples: tf.Tensor, **values: tf.Tensor) -> None:
        """Add the vital signs of a step to their means."""
        unit = (samples - self._input_range.middle) / self._input_range.scale
        squares, count = tf.unstack(
            sum_over_replicas(
                tf.stack([tf.reduce_sum(unit**2), tf.cast(tf.size(unit), tf.float32)])
            )
        )
        values["extent"] = tf.sqrt(tf.math.divide_no_nan(squares, count))
        current = tf.stack([tf.cast(values.get(name, 1.0), tf.float32) for name in VITALS])
        means, steps = self._progress["vitals"], self._progress["watched"]
        rate = 1.0 / tf.minimum(steps + 1.0, WINDOW)
        updated = means + rate * (current - means)
        means.assign(tf.where(tf.math.is_finite(current), updated, means))
        steps.assign_add(1.0)
