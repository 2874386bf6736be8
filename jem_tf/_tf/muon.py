"""Muon for convolutions: Keras' optimizer leaves all but matrices to AdamW.

Not here: schedules and settings (`training/recipes.py`).
"""

import re
from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("jem_tf")
class Muon(keras.optimizers.Muon):
    """`keras.optimizers.Muon` that takes the kernel of a convolution over images as a matrix with a
    column for each filter, as its authors do. All other weights are updated by AdamW.

    ```python
    model.compile(Muon(4e-3, weight_decay=0.05, adam_weight_decay=0.05))
    ```
    """

    def _should_use_adamw(self, variable: Any) -> bool:
        excluded = any(re.search(keyword, variable.path) for keyword in self.exclude_layers)
        return excluded or len(variable.shape) != 4

    def zeropower_via_newtonschulz5(self, x: tf.Tensor, steps: int) -> tf.Tensor:
        matrix = tf.reshape(x, [-1, x.shape[-1]])
        return tf.reshape(super().zeropower_via_newtonschulz5(matrix, steps), x.shape)

    def lr_adjust(self, x: tf.Tensor) -> tf.Tensor:
        matrix = tf.reshape(x, [-1, x.shape[-1]])
        return tf.reshape(super().lr_adjust(matrix), x.shape)
