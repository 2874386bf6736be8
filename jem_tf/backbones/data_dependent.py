"""Layers whose first weights are computed from the first rows of the data.

Not here: such layers (`actnorm.py`, `patches.py`).
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf.private import flatten_layers

MAX_ROWS = 256  # that weights are computed from


class DataDependent(keras.layers.Layer):
    """A layer with `initialise`, which `initialise_from_data` calls once with its inputs.

    A layer that was called in training mode before has weights that later layers rely on: they stay
    as they are.
    """

    initialising = False  # whether the next call sets the weights from its inputs

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.initialized = self.add_weight(
            (), "zeros", name="initialized", trainable=False, aggregation="only_first_replica"
        )

    def initialise(self, inputs: tf.Tensor) -> None:
        """Assign the weights that suit `inputs`."""
        raise NotImplementedError

    def transform(self, inputs: tf.Tensor) -> tf.Tensor:
        """The outputs of the layer."""
        raise NotImplementedError

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if self.initialising:
            self.initialise(inputs)
        if self.initialising or training:
            self.initialized.assign(1.0)
        return self.transform(inputs)


def initialise_from_data(model: keras.Model, rows: tf.Tensor) -> None:
    """Initialise each such layer of `model` that is not yet initialised from `rows`, eagerly."""
    layers = [x for x in flatten_layers(model) if isinstance(x, DataDependent)]
    pending = [x for x in layers if float(x.initialized) == 0.0]
    if not pending:
        return
    for layer in pending:
        layer.initialising = True
    try:
        model(rows[:MAX_ROWS], training=False)
    finally:
        for layer in pending:
            layer.initialising = False
