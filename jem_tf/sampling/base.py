"""What SGLD and MALA share: settings, their checks, and the size of a step.

Not here: the update itself, and any state. The value of a self-tuning step size belongs to the
model.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from jem_tf.checks import check_positive, check_positive_integer

LogDensityFn = Callable[[tf.Tensor], tf.Tensor]
AUTO = "auto"
MOVES = (0.05, 0.5)  # root mean square change of a value by the noise of a run, in half ranges


class Sampler(ABC):
    """Base class of samplers: `steps` updates of size `step_size`.

    `step_size` is a number, a Keras schedule called with the index of the step in its chain, or
    "auto": the caller then passes the present value to `run` and asks `tune` for the next one.

    A sampler implements `run` and `tune`, and names what `run` reports in `diagnostics`.
    """

    row_seeds = True  # whether `run` takes a seed for each row
    takes_shares = False  # whether `run` takes a list of densities, each for a share of the rows
    diagnostics: tuple[str, ...] = ()  # names of what `run` reports beside the samples

    def __init__(self, steps: int, step_size: Any, temperature: float):
        check_positive_integer("steps", steps)
        check_positive("temperature", temperature)
        if isinstance(step_size, dict):  # as `get_config` writes it
            step_size = keras.saving.deserialize_keras_object(step_size)
        schedule = isinstance(step_size, keras.optimizers.schedules.LearningRateSchedule)
        if not schedule and step_size != AUTO:
            check_positive("step_size", step_size, 'a positive number, "auto" or a Keras schedule')
        self.steps = int(steps)
        self.step_size = step_size
        self.temperature = float(temperature)

    @abstractmethod
    def run(
        self,
        log_density: LogDensityFn,
        x: tf.Tensor,
        seed: tf.Tensor,
        steps: int | tf.Tensor | None = None,
        step_size: tf.Tensor | float | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Run `steps` updates from `x`; return the ends of the chains and the `diagnostics`."""

    @abstractmethod
    def tune(self, step_size: tf.Tensor, stats: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return the next step size, given the diagnostics of the last run."""

    def uses_bfloat16(self, network: Any) -> bool:
        """Whether chains of a training compute `network` in bfloat16."""
        return False

    @property
    def step_size_bounds(self) -> tuple[float, float]:
        """The bounds of "auto": the noise of one run moves a value by at least 0.05 and at most
        0.5 half ranges. Chains that hardly move teach nothing."""
        low, high = (move**2 / (2.0 * self.temperature * self.steps) for move in MOVES)
        return low, high

    def at_lower_bound(self, step_size: float) -> bool:
        """Whether "auto" would take smaller steps if its bounds allowed it."""
        return self.tunes and step_size <= 1.01 * self.step_size_bounds[0]

    @property
    def tunes(self) -> bool:
        """Whether the step size adapts to the training."""
        return isinstance(self.step_size, str)

    @property
    def default_step_size(self) -> float:
        """What `run` takes for `step_size` by default: where "auto" begins, or a factor of 1."""
        return self.step_size_bounds[1] if self.tunes else 1.0

    def step_size_at(self, index: tf.Tensor, tuned: tf.Tensor | float | None) -> tf.Tensor:
        """The size of step `index`; `tuned` is the present value of "auto", and a factor
        otherwise."""
        tuned = self.default_step_size if tuned is None else tuned
        if self.tunes:
            return tf.cast(tuned, tf.float32)
        size = self.step_size(index) if callable(self.step_size) else self.step_size
        return tf.cast(size, tf.float32) * tuned

    def suitable_step_size(self, scores: tf.Tensor) -> tf.Tensor:
        """Where "auto" begins, given the scores d log p / dx at the starts of chains."""
        return tf.constant(self.default_step_size)

    def bounded(self, step_size: tf.Tensor, log_change: tf.Tensor) -> tf.Tensor:
        """`step_size * exp(log_change)` inside the bounds; unchanged if that is non-finite."""
        proposed = tf.clip_by_value(step_size * tf.exp(log_change), *self.step_size_bounds)
        return tf.where(tf.math.is_finite(log_change), proposed, step_size)

    def get_config(self) -> dict[str, Any]:
        size = self.step_size
        if callable(size):
            size = keras.saving.serialize_keras_object(size)
        return {"steps": self.steps, "step_size": size, "temperature": self.temperature}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Sampler":
        return cls(**config)
