"""Activation normalisation (Kingma and Dhariwal 2018): scale * (x + loc) for each channel.

Both are ordinary weights. They are initialised such that the first rows of the data have mean 0 and
standard deviation 1.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf.backbones.data_dependent import DataDependent


@keras.saving.register_keras_serializable("jem_tf")
class ActNorm(DataDependent):
    """`scale * (x + loc)`; `initialise_from_data` chooses the first values.

    ```python
    keras.Sequential([keras.layers.Conv2D(8, 3), ActNorm()])
    ```
    """

    def build(self, input_shape: Any) -> None:
        channels = (input_shape[-1],)
        self.loc = self.add_weight(channels, "zeros", name="loc")
        self.scale = self.add_weight(channels, "ones", name="scale")
        super().build(input_shape)

    def initialise(self, inputs: tf.Tensor) -> None:
        mean, variance = tf.nn.moments(inputs, list(range(len(inputs.shape) - 1)))
        self.loc.assign(-mean)
        self.scale.assign(1.0 / (tf.sqrt(variance) + 1e-6))

    def transform(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.scale * (inputs + self.loc)
