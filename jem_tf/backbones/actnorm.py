"""Activation normalisation (Kingma and Dhariwal 2018): scale * (x + loc) for each channel.

Both are ordinary weights. They are initialised such that the first rows of the data have mean 0 and
standard deviation 1.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf.private import flatten_layers


@keras.saving.register_keras_serializable("jem_tf")
class ActNorm(keras.layers.Layer):
    """`scale * (x + loc)`; `initialise_actnorm` chooses the first values from data.

    A layer that was called in training mode before keeps its values: others rely on them.

    ```python
    keras.Sequential([keras.layers.Conv2D(8, 3), ActNorm()])
    ```
    """

    initialising = False  # whether the next call sets the weights from its inputs

    def build(self, input_shape: Any) -> None:
        channels = (input_shape[-1],)
        self.loc = self.add_weight(channels, "zeros", name="loc")
        self.scale = self.add_weight(channels, "ones", name="scale")
        self.initialized = self.add_weight(
            (), "zeros", name="initialized", trainable=False, aggregation="only_first_replica"
        )

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if self.initialising:
            mean, variance = tf.nn.moments(inputs, list(range(len(inputs.shape) - 1)))
            self.loc.assign(-mean)
            self.scale.assign(1.0 / (tf.sqrt(variance) + 1e-6))
        if self.initialising or training:
            self.initialized.assign(1.0)
        return self.scale * (inputs + self.loc)


def initialise_actnorm(model: keras.Model, rows: tf.Tensor) -> None:
    """Initialise each `ActNorm` of `model` that is not yet initialised from `rows`, eagerly."""
    layers = [x for x in flatten_layers(model) if isinstance(x, ActNorm)]
    pending = [x for x in layers if float(x.initialized) == 0.0]
    if not pending:
        return
    for layer in pending:
        layer.initialising = True
    try:
        model(rows, training=False)
    finally:
        for layer in pending:
            layer.initialising = False
