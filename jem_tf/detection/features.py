"""Features of a network: vectors from its hidden layers.

Not here: what they say about an input (`statistics.py`).
"""

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf import private

MAX_STAGES = 6  # layers that are found by themselves; the last ones, if there are more
MAX_UNITS = 1024  # of a vector; longer ones are sketched
SKETCH_SEED = 0


def find_layers(backbone: keras.Model) -> list[str]:
    """The names of the layers whose outputs describe an input: the last layer of each size.

    ```python
    find_layers(jem_tf.backbones.convnet((28, 28, 1), 10))
    ```

    A size is the height and width of a map, or the length of a vector. Models that are not made
    of layers (subclasses of `keras.Model`) have none.
    """
    if not private.is_layer_graph(backbone):
        return []
    last_of_size: dict[Any, str] = {}
    for layer in backbone.layers[:-1]:
        shape = _output_shape(layer)
        if isinstance(layer, keras.layers.InputLayer) or shape is None:
            continue
        size = ("vector", shape[-1]) if len(shape) == 2 else shape[1:-1]
        last_of_size.pop(size, None)  # the order is that of the last layers
        last_of_size[size] = layer.name
    return list(last_of_size.values())[-MAX_STAGES:]


def feature_network(backbone: keras.Model, names: Sequence[str]) -> keras.Model:
    """A model from inputs to the outputs of the layers `names`, and the logits; it shares weights.

    Raises `ValueError` for names that do not exist, or outputs that cannot become vectors.
    """
    if not names:
        return backbone
    if not private.is_layer_graph(backbone):
        raise ValueError(
            "Features need a Sequential or functional backbone, whose layers can be read. "
            f"Received: layers={list(names)} and a {type(backbone).__name__}"
        )
    layers = {layer.name: layer for layer in backbone.layers}
    for name in names:
        if name not in layers:
            near = get_close_matches(name, layers, 3) or list(layers)[:5]
            raise ValueError(f"The backbone has no layer {name!r}. Near names: {', '.join(near)}.")
        if _output_shape(layers[name]) is None:
            raise ValueError(
                f"The output of layer {name!r} cannot become a vector: its last axis must have a "
                f"known length. Received: {layers[name].output!r}"
            )
    outputs = [layers[name].output for name in names]
    return keras.Model(backbone.inputs, [*outputs, *backbone.outputs])


def to_vectors(outputs: tf.Tensor) -> tf.Tensor:
    """Outputs of a layer `[n, ..., c]` as float32 vectors `[n, d]`, d at most `MAX_UNITS`.

    Maps become the mean and the standard deviation of each channel. Longer vectors are sketched:
    units with random signs are added up, which keeps distances about as they are.
    """
    outputs = tf.cast(outputs, tf.float32)
    if len(outputs.shape) > 2:
        mean, variance = tf.nn.moments(outputs, list(range(1, len(outputs.shape) - 1)))
        outputs = tf.concat([mean, tf.sqrt(variance + 1e-8)], axis=1)
    units = outputs.shape[1]
    if units <= MAX_UNITS:
        return outputs
    parts = math.ceil(units / MAX_UNITS)
    bits = tf.random.stateless_uniform([units], [SKETCH_SEED, 0], 0, 2, tf.int32)
    signed = outputs * tf.cast(2 * bits - 1, tf.float32)
    padded = tf.pad(signed, [[0, 0], [0, parts * MAX_UNITS - units]])
    return tf.reduce_sum(tf.reshape(padded, [-1, parts, MAX_UNITS]), axis=1)


def vector_size(shape: tuple[Any, ...]) -> int:
    """The length of the vectors that `to_vectors` makes of outputs of `shape`."""
    return min(MAX_UNITS, shape[-1] if len(shape) == 2 else 2 * shape[-1])


def _output_shape(layer: keras.layers.Layer) -> tuple[int | None, ...] | None:
    """The shape of the output of `layer`; None unless it is one float tensor `[n, ..., c]`."""
    output: Any = getattr(layer, "output", None)
    shape = getattr(output, "shape", None)
    if shape is None or len(shape) < 2 or shape[-1] is None or "float" not in str(output.dtype):
        return None
    return tuple(shape)
