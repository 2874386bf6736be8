"""Trained classifiers as backbones: the last softmax taken off, the expected values of pixels.

Not here: loading them (`loading.py`), checks of backbones (`backbone.py`).
"""

from collections.abc import Iterator
from typing import Any

import keras

from jem_tf._tf import private

SOFTMAX = (keras.activations.softmax, keras.activations.log_softmax)


def without_softmax(model: keras.Model) -> keras.Model:
    """`model` without a softmax at its end; `model` itself if it has none.

    The result shares all layers but the last with `model`. Softmax only adds a constant to the
    logits of a row; the logits before it also hold log p(x).
    """
    if not private.is_layer_graph(model) or not model.built or len(model.outputs) != 1:
        return model
    layer, inputs = private.producer(model.outputs[0])
    if type(layer).__name__ == "Softmax" or (
        isinstance(layer, keras.layers.Activation) and layer.activation in SOFTMAX
    ):
        logits = inputs[0]
    elif isinstance(layer, keras.Model) and without_softmax(layer) is not layer:
        logits = without_softmax(layer)(inputs[0])
    elif getattr(layer, "activation", None) in SOFTMAX:
        linear = type(layer).from_config({**layer.get_config(), "activation": "linear"})
        logits = linear(inputs[0])
        linear.set_weights(layer.get_weights())
    else:
        return model
    first, rest = private.producer(logits)
    if isinstance(first, keras.Model) and rest[0] is model.inputs[0]:
        return first  # a model in a model: only the inner one has layers that can be read
    inputs = model.inputs[0] if len(model.inputs) == 1 else model.inputs
    return keras.Model(inputs, logits, name=model.name)


def first_layer(model: keras.Model) -> Any:
    """The first layer or operation that changes the values of the inputs of `model`, in whatever
    model it is; or None. Of a `JEM`, that of the network that takes raw inputs."""
    for operation in _operations(getattr(model, "raw_network", model)):
        if not isinstance(operation, _KEEPS_VALUES):
            return operation
    return None


# Augmentation, resizing, and layers that only arrange values or act in training.
_KEEPS_VALUES = (
    private.ImageLayer,
    keras.layers.InputLayer,
    keras.layers.Identity,
    keras.layers.Reshape,
    keras.layers.Permute,
    keras.layers.Flatten,
    keras.layers.Dropout,
    keras.layers.GaussianNoise,
)


def _operations(model: Any) -> Iterator[Any]:
    """Layers and operations from the inputs on, those inside models included."""
    for operation in model.operations if hasattr(model, "operations") else model.layers:
        if hasattr(operation, "layers"):
            yield from _operations(operation)
        else:
            yield operation


def rescales(model: keras.Model) -> bool:
    """Whether `model` begins by scaling its inputs."""
    kinds = (keras.layers.Rescaling, keras.layers.Normalization)
    return isinstance(first_layer(model), kinds)


def expected_pixels(model: keras.Model) -> tuple[float, float] | None:
    """(0, 255) for a model that begins by rescaling 8-bit images; None if it does not say."""
    layer = first_layer(model)
    if isinstance(layer, keras.layers.Rescaling) and 1 / 256 <= _number(layer.scale) <= 1 / 127:
        return (0.0, 255.0)
    return None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
