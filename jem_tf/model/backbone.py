"""The network inside a model: checks of what it returns, and calls with any number of rows."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf import private
from jem_tf.checks import are_probabilities
from jem_tf.data import inputs
from jem_tf.model.classifiers import SOFTMAX, first_layer


def check_backbone(backbone: Any) -> None:
    """Raise unless `backbone` looks like a classifier that ends in logits."""
    if not isinstance(backbone, keras.Model):
        raise TypeError(
            f"`backbone` must be a keras.Model that returns logits. Received: {type(backbone)}"
        )
    _check_inputs(backbone)
    last = _last_layer(backbone)
    activation = getattr(last, "activation", None)
    if activation is keras.activations.sigmoid:
        one_unit = getattr(last, "units", None) == 1
        remedy = (
            "use Dense(2) without activation, and labels 0 and 1."
            if one_unit
            else ("remove that activation, and give each row one class.")
        )
        raise ValueError(
            "`backbone` must end in logits of classes that exclude each other. Received: a "
            f"backbone ending in sigmoid (layer {last.name!r}); {remedy}"
        )
    if isinstance(last, keras.layers.Softmax) or activation in SOFTMAX:
        raise ValueError(
            "`backbone` must end in logits: softmax hides the energy log-sum-exp of the logits. "
            f"Received: a backbone ending in {getattr(activation, '__name__', 'softmax')} "
            f"(layer {last.name!r}); JEM.from_classifier(backbone) takes it off."
        )


def _check_inputs(backbone: keras.Model) -> None:
    """Raise unless `backbone` takes one tensor of real numbers."""
    tensors = backbone.inputs if private.is_layer_graph(backbone) and backbone.built else []
    if len(tensors) > 1:
        shapes = ", ".join(f"{tensor.name} {tuple(tensor.shape)}" for tensor in tensors)
        raise ValueError(inputs.SEVERAL_INPUTS.format(f"a backbone with inputs {shapes}"))
    first = first_layer(backbone)
    kinds = [str(tensor.dtype) for tensor in tensors if "float" not in str(tensor.dtype)]
    if kinds or isinstance(first, keras.layers.Embedding):
        raise ValueError(
            "`backbone` must take real numbers, as noise, chains and gradients change its inputs. "
            f"Received: inputs of {kinds[0] if kinds else f'an Embedding (layer {first.name!r})'}. "
            "Use JEM(head, encoder=encoder), where the encoder ends in a vector."
        )


def check_output_shape(shape: Any) -> None:
    """Raise unless `shape` is `[batch, classes]` with at least two classes."""
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[1] is None or shape[1] < 2:
        raise ValueError(
            "`backbone` must return logits of shape [batch, classes] with at least 2 classes, such "
            f"as Dense(2) for yes and no. Received: output shape {shape}"
        )


def check_logits(logits: np.ndarray) -> None:
    """Raise if `logits` are probabilities, as from a softmax inside a custom model."""
    if are_probabilities(logits):
        raise ValueError(
            "`backbone` must return logits. Received: rows that are probabilities "
            f"(the first is {np.array2string(logits[0], precision=3, threshold=6)}); "
            "remove the softmax."
        )


# Layers that take `training` and ignore it: models that only chain layers, and dense layers, which
# use it for float8 quantisation.
_IGNORE_TRAINING = (
    keras.Sequential,
    private.Functional,
    keras.layers.Dense,
    keras.layers.EinsumDense,
)


def depends_on_training(model: keras.Model) -> bool:
    """Whether any part of `model` acts differently in training (batch norm, dropout, ...)."""
    return any(
        private.takes_training_argument(layer)
        for layer in private.flatten_layers(model)
        if type(layer) not in _IGNORE_TRAINING
    )


def call_allowing_empty(network: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """Return `network(x)` for any number of rows, 0 included.

    A replica, or a share of the chains, may get no rows of the last batch. oneDNN's convolutions
    give an empty batch the wrong shape, so a row is added and its output dropped.
    """
    if x.shape[0]:  # known, and not 0
        return network(x)
    rows = tf.shape(x)[0]
    missing = 1 - tf.minimum(rows, 1)
    return network(tf.pad(x, [[0, missing], *[[0, 0]] * (len(x.shape) - 1)]))[:rows]


def _last_layer(model: keras.Model) -> Any:
    layers = getattr(model, "layers", None)
    last = layers[-1] if layers else None
    return _last_layer(last) if isinstance(last, keras.Model) else last
