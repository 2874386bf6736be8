"""Learning rate schedules that Keras does not have.

Not here: the schedules of Keras, which these wrap.
"""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("jem_tf")
class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0 to `schedule`, a number or a Keras schedule, over `steps` steps.

    ```python
    keras.optimizers.Adam(Warmup(1e-4, steps=1000))
    ```
    """

    def __init__(self, schedule: Any, steps: int):
        self.schedule, self.steps = _deserialise(schedule), int(steps)

    def __call__(self, step: Any) -> tf.Tensor:
        rate = self.schedule(step) if callable(self.schedule) else self.schedule
        return rate * tf.minimum(1.0, tf.cast(step, tf.float32) / max(1, self.steps))

    def get_config(self) -> dict[str, Any]:
        return {"schedule": _serialise(self.schedule), "steps": self.steps}


@keras.saving.register_keras_serializable("jem_tf")
class Cooled(keras.optimizers.schedules.LearningRateSchedule):
    """`schedule` times a factor, which `DivergenceGuard` keeps in a variable and changes.

    ```python
    keras.optimizers.Adam(Cooled(keras.optimizers.schedules.CosineDecay(1e-3, 1000), factor=0.5))
    ```
    """

    def __init__(self, schedule: Any, factor: Any = 1.0):
        super().__init__()
        self.schedule, self.factor = _deserialise(schedule), factor

    def __call__(self, step: Any) -> Any:
        return self.schedule(step) * self.factor

    def get_config(self) -> dict[str, Any]:
        return {"schedule": _serialise(self.schedule)}


def _serialise(schedule: Any) -> Any:
    return keras.saving.serialize_keras_object(schedule) if callable(schedule) else schedule


def _deserialise(schedule: Any) -> Any:
    is_config = isinstance(schedule, dict)
    return keras.saving.deserialize_keras_object(schedule) if is_config else schedule
