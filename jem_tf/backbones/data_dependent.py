"""Layers whose first weights are computed from the first rows of the data.

Not here: such layers (`actnorm.py`, `patches.py`).
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf.private import flatten_layers


class DataDependent(keras.layers.Layer):
    """A layer with `initialise`, which `initialise_from_data` calls once with its inputs."""

    initialising = False  # whether the next call sets the weights from its inputs

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.initialized = self.add_weight((), "zeros", name="initialized", trainable=False)

    def initialise(self, inputs: tf.Tensor) -> None:
        """Assign the weights that suit `inputs`."""
        raise NotImplementedError

    def transform(self, inputs: tf.Tensor) -> tf.Tensor:
        """The outputs of the layer."""
        raise NotImplementedError

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if self.initialising:
            self.initialise(inputs)
            self.initialized.assign(1.0)
        return self.transform(inputs)


def initialise_from_data(model: keras.Model, rows: tf.Tensor) -> None:
    """Initialise each such layer of `model` that is not yet initialised from `rows`, eagerly."""
    layers = [x for x in flatten_layers(model) if isinstance(x, DataDependent)]
    pending = [x for x in layers if float(x.initialized) == 0.0]
    for layer in pending:
        layer.initialising = True
    if pending:
        model(rows, training=False)
    for layer in pending:
        layer.initialising = False
