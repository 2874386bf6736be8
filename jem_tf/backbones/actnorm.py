"""Activation normalisation (Kingma and Dhariwal 2018): scale * (x + loc), a pair for each channel.

Not here: statistics of batches. The pair is a weight like others, and starts so that the first
rows of the data have mean 0 and deviation 1.
"""

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("jem_tf")
class ActNorm(keras.layers.Layer):
    """`scale * (x + loc)`; `initialise` learns where they start from data."""

    learning = False  # whether the next rows decide

    def build(self, input_shape: Any) -> None:
        channels = (input_shape[-1],)
        self.loc = self.add_weight(channels, "zeros", name="loc")
        self.scale = self.add_weight(channels, "ones", name="scale")
        self.initialized = self.add_weight((), "zeros", name="initialized", trainable=False)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if self.learning:
            mean, variance = tf.nn.moments(inputs, list(range(len(inputs.shape) - 1)))
            self.loc.assign(-mean)
            self.scale.assign(1.0 / (tf.sqrt(variance) + 1e-6))
            self.initialized.assign(1.0)
        return self.scale * (inputs + self.loc)


def initialise(model: keras.Model, rows: tf.Tensor) -> None:
    """Fit each `ActNorm` of `model` that has not seen data yet to `rows`, eagerly."""
    layers = [x for x in model._flatten_layers() if isinstance(x, ActNorm)]
    waiting = [x for x in layers if float(x.initialized) == 0.0]
    for layer in waiting:
        layer.learning = True
    if waiting:
        model(rows, training=False)
    for layer in waiting:
        layer.learning = False
