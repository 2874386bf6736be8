"""JEM on features: a frozen encoder maps raw inputs to the vectors in which the density lives.

Not here: the density (`jem.py`). All methods of a model that take inputs take raw ones; inside the
model, and in arrays of the type `Features`, are vectors.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf import private
from jem_tf.data import inputs

BATCH_SIZE = 64  # rows that the encoder sees at a time


class Features(np.ndarray):
    """Rows that an encoder has encoded: methods of a model do not encode them again."""


def as_features(rows: Any) -> Features:
    """Mark `rows` as encoded."""
    return np.asarray(rows, np.float32).view(Features)


class Encoder:
    """The frozen encoder of a model, and calls of it.

    Args:
        network: any Keras model from raw inputs to vectors `[batch, units]`.
        head: the network from these vectors to logits.
    """

    def __init__(self, network: Any, head: keras.Model):
        if not isinstance(network, keras.Model) or not private.is_layer_graph(network):
            raise TypeError(
                "`encoder` must be a Sequential or functional keras.Model, such as "
                f"keras.applications have. Received: {type(network)}"
            )
        if len(network.inputs) != 1:
            shapes = ", ".join(f"{tensor.name} {tuple(tensor.shape)}" for tensor in network.inputs)
            raise ValueError(inputs.SEVERAL_INPUTS.format(f"an encoder with inputs {shapes}"))
        output = network.output_shape
        if not isinstance(output, tuple) or len(output) != 2 or output[1] is None:
            raise ValueError(
                "`encoder` must end in vectors [batch, units]: add GlobalAveragePooling2D or "
                f"Flatten. Received: output shape {output}"
            )
        if head.built and head.input_shape != output:
            raise ValueError(
                f"The head takes inputs of shape {head.input_shape[1:]}, and the encoder returns "
                f"{output[1:]}."
            )
        network.trainable = False
        self.network = network
        self.shape, self.dtype = network.input_shape[1:], tf.as_dtype(network.inputs[0].dtype)
        self._call = tf.function(self.__call__, autograph=False, reduce_retracing=True)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Vectors of raw inputs, in the graph."""
        return tf.cast(self.network(x, training=False), tf.float32)

    def rows(self, x: Any) -> Features:
        """Vectors of an array of raw inputs, or of a list of strings."""
        if isinstance(x, Features):
            return x
        x = x if hasattr(x, "shape") else np.asarray(x)
        inputs.check_shape(x.shape[1:], self.shape)
        begins = range(0, len(x), BATCH_SIZE)
        parts = [self._batch(x[begin : begin + BATCH_SIZE]) for begin in begins]
        return as_features(np.concatenate([np.zeros((0, *self.network.output_shape[1:])), *parts]))

    def _batch(self, x: Any) -> np.ndarray:
        values = tf.convert_to_tensor(np.asarray(x))
        return self._call(
            values if self.dtype == tf.string else tf.cast(values, self.dtype)
        ).numpy()

    def data(self, x: Any, y: Any = None, weight: Any = None) -> tuple[Any, Any, Any]:
        """x, y and weights with x encoded: arrays, also of a finite stream, which is read once; an
        endless stream is encoded as it is read."""
        if not inputs.is_stream(x):
            return self.rows(x), y, weight
        inputs.check_batched(x)
        endless = (
            isinstance(x, tf.data.Dataset) and int(x.cardinality()) == tf.data.INFINITE_CARDINALITY
        )
        if endless or not hasattr(x, "__len__"):
            items = (inputs.unpack(item) for item in x)
            return ((self.rows(rows), *rest) for rows, *rest in items), None, None
        items = (x[i] for i in range(len(x))) if hasattr(x, "__getitem__") else x
        batches = [inputs.unpack(item) for item in items]
        if not batches:
            raise ValueError("The data set is empty: there is no row to encode.")
        parts = zip(*((self.rows(rows), labels, w) for rows, labels, w in batches))
        rows, labels, weights = (None if p[0] is None else np.concatenate(p) for p in parts)
        return as_features(rows), labels, weights


def encode_fit(
    encoder: Encoder, x: Any, y: Any, batch_size: int | None, options: dict[str, Any]
) -> tuple[Any, Any, int | None]:
    """The arguments of `fit` with features instead of raw inputs; changes `options`."""
    if batch_size is None and isinstance(x, tf.data.Dataset):
        batch_size = next((len(inputs.unpack(item)[0]) for item in x.take(1)), None)
    x, y, weight = encoder.data(x, y, options.get("sample_weight"))
    if weight is not None:
        options["sample_weight"] = weight
    if options.get("validation_data") is not None:
        data = options["validation_data"]
        parts = inputs.unpack(data) if isinstance(data, (tuple, list)) else (data,)
        encoded = encoder.data(*parts)
        options["validation_data"] = tuple(part for part in encoded if part is not None)
    return x, y, batch_size
