"""Learning rates that rise before they do what another schedule says.

Not here: the schedules of Keras, which this wraps.
"""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("jem_tf")
class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """`schedule`, a number or a Keras schedule, reached in a line from 0 over `steps` steps."""

    def __init__(self, schedule: Any, steps: int):
        if isinstance(schedule, dict):  # as `get_config` writes it
            schedule = keras.saving.deserialize_keras_object(schedule)
        self.schedule, self.steps = schedule, int(steps)

    def __call__(self, step: Any) -> tf.Tensor:
        rate = self.schedule(step) if callable(self.schedule) else self.schedule
        return rate * tf.minimum(1.0, tf.cast(step, tf.float32) / max(1, self.steps))

    def get_config(self) -> dict[str, Any]:
        schedule = self.schedule
        if callable(schedule):
            schedule = keras.saving.serialize_keras_object(schedule)
        return {"schedule": schedule, "steps": self.steps}
