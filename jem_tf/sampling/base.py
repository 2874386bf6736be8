"""What SGLD and MALA share: settings, their checks, and the size of a step.

Not here: the update itself, and any state: a self-tuning step size belongs to the model.
"""

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

LogDensityFn = Callable[[tf.Tensor], tf.Tensor]
AUTO = "auto"


class Sampler:
    """Base of the samplers: `steps` updates of size `step_size`.

    `step_size` is a number, a Keras schedule called with the index of the step in its chain, or
    "auto": the caller then passes the present value to `run` and asks `tune` for the next one.
    """

    initial_step_size = 1.0  # where "auto" begins, and the bounds it keeps to
    step_size_bounds = (1e-3, 10.0)
    row_seeds = True  # whether `run` takes a seed for each row
    reuse = 1  # steps for one pass through the network
    side_by_side = False  # whether `run` takes a list of densities, each for a share of the rows
    diagnostics: tuple[str, ...] = ()  # names of what `run` reports beside the samples

    def __init__(self, steps: int, step_size: Any):
        check_steps(steps)
        if isinstance(step_size, dict):  # as `get_config` writes it
            step_size = keras.saving.deserialize_keras_object(step_size)
        schedule = isinstance(step_size, keras.optimizers.schedules.LearningRateSchedule)
        if not schedule and step_size != AUTO:
            check_positive("step_size", step_size, 'a positive number, "auto" or a Keras schedule')
        self.steps = int(steps)
        self.step_size = step_size

    @property
    def tunes(self) -> bool:
        """Whether the step size adapts to the training."""
        return isinstance(self.step_size, str)

    @property
    def first(self) -> float:
        """What `run` takes for `step_size` unless told: where "auto" begins, or a factor of 1."""
        return self.initial_step_size if self.tunes else 1.0

    def step_size_at(self, index: tf.Tensor, tuned: tf.Tensor | float | None) -> tf.Tensor:
        """The step size of step `index`; `tuned` is the present value when it is "auto", and
        else a factor."""
        tuned = self.first if tuned is None else tuned
        if self.tunes:
            return tf.cast(tuned, tf.float32)
        size = self.step_size(index) if callable(self.step_size) else self.step_size
        return tf.cast(size, tf.float32) * tuned

    def first_step_size(self, scores: tf.Tensor) -> tf.Tensor:
        """Where "auto" begins, given the scores at the starts of chains."""
        return tf.constant(self.initial_step_size)

    def bounded(self, step_size: tf.Tensor, log_change: tf.Tensor) -> tf.Tensor:
        """`step_size * exp(log_change)` inside the bounds; unchanged where that is not finite."""
        proposed = tf.clip_by_value(step_size * tf.exp(log_change), *self.step_size_bounds)
        return tf.where(tf.math.is_finite(log_change), proposed, step_size)

    def get_config(self) -> dict[str, Any]:
        size = self.step_size
        if callable(size):
            size = keras.saving.serialize_keras_object(size)
        return {"steps": self.steps, "step_size": size}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Sampler":
        return cls(**config)


def mean(values: tf.Tensor) -> tf.Tensor:
    """The mean, and 0 of nothing: a replica may get no rows of the last batch."""
    return tf.math.divide_no_nan(tf.reduce_sum(values), tf.cast(tf.size(values), tf.float32))


def check_steps(steps: Any) -> None:
    """Raise `ValueError` unless `steps` is a positive integer."""
    if isinstance(steps, bool) or not hasattr(steps, "__index__") or steps < 1:
        raise ValueError(f"`steps` must be a positive integer. Received: steps={steps!r}")


def check_positive(name: str, value: Any, kind: str = "a positive number") -> None:
    """Raise `ValueError` unless `value` is a finite number above zero."""
    try:
        good = math.isfinite(value) and value > 0
    except TypeError:
        good = False
    if not good:
        raise ValueError(f"`{name}` must be {kind}. Received: {name}={value!r}")
