"""The range of the inputs: the unit in which chains move and noise is added.

Not here: where chains start (`starts.py`).
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.state import State


@keras.saving.register_keras_serializable("jem_tf")
class InputRange(State):
    """The smallest and largest value of each feature, where features are the last axis.

    ```python
    input_range = InputRange()
    input_range.adapt(x)             # x [rows, ...]
    input_range.scale                # half the range of each feature, in the shape of a row
    ```
    """

    def adapt(self, x: np.ndarray, bounds: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        """Learn the range of rows `x`, or take `bounds` if the range of more rows is known."""
        axes = tuple(range(x.ndim - 1))
        low, high = (x.min(axes), x.max(axes)) if bounds is None else bounds
        shaped = [np.broadcast_to(v, x.shape[1:]).astype(np.float32) for v in (low, high)]
        self.assign(low=shaped[0], high=shaped[1])

    @property
    def adapted(self) -> bool:
        """Whether the range is known."""
        return "low" in self

    @property
    def low(self) -> tf.Variable:
        return self["low"]

    @property
    def high(self) -> tf.Variable:
        return self["high"]

    @property
    def middle(self) -> tf.Tensor:
        return (self.low + self.high) / 2.0

    @property
    def scale(self) -> tf.Tensor:
        """Half the range of each feature; 1 where that is 0, or while the range is not known."""
        if not self.adapted:
            return tf.constant(1.0)
        half = (self.high - self.low) / 2.0
        return tf.where(half > 0, half, tf.ones_like(half))

    def numpy(self) -> tuple[Any, Any]:
        """The lower and upper bound as arrays."""
        arrays = self.arrays()
        return arrays["low"], arrays["high"]
