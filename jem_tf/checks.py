"""Checks of backbones and names: errors a user meets at once, not in the middle of training.

Not here: checks of data (`inputs.py`) and of settings (where the setting is).
"""

import difflib
from collections.abc import Collection
from typing import Any

import keras
import numpy as np


def check_backbone(backbone: Any) -> None:
    """Raise unless `backbone` looks like a classifier that ends in logits."""
    if not isinstance(backbone, keras.Model):
        raise TypeError(
            f"`backbone` must be a keras.Model that returns logits. Received: {type(backbone)}"
        )
    last = _last_layer(backbone)
    activation = getattr(last, "activation", None)
    if isinstance(last, keras.layers.Softmax) or activation in (
        keras.activations.softmax,
        keras.activations.log_softmax,
        keras.activations.sigmoid,
    ):
        raise ValueError(
            "`backbone` must end in logits: softmax hides the energy log-sum-exp of the logits. "
            f"Received: a backbone ending in {getattr(activation, '__name__', 'softmax')} "
            f"(layer {last.name!r}); remove that activation."
        )


def check_output_shape(shape: Any) -> None:
    """Raise unless `shape` is `[batch, classes]` with at least two classes."""
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[1] is None or shape[1] < 2:
        raise ValueError(
            "`backbone` must return logits of shape [batch, classes] with at least 2 classes. "
            f"Received: output shape {shape}"
        )


def check_logits(logits: np.ndarray) -> None:
    """Raise if `logits` are probabilities, as from a softmax inside a custom model."""
    if are_probabilities(logits):
        raise ValueError(
            "`backbone` must return logits. Received: rows that are probabilities "
            f"(the first is {np.array2string(logits[0], precision=3, threshold=6)}); "
            "remove the softmax."
        )


def are_probabilities(values: np.ndarray) -> bool:
    """Whether all rows are probabilities, or their logarithms."""
    total = np.exp(values) if (values <= 0).all() else values
    return bool((total >= 0).all() and np.allclose(total.sum(-1), 1.0, atol=1e-3))


# Layers that take `training` without acting on it: models that only chain layers, and dense
# layers, which know it for float8 quantisation.
_INDIFFERENT = (
    keras.Sequential,
    keras.src.models.Functional,
    keras.layers.Dense,
    keras.layers.EinsumDense,
)


def depends_on_training(model: keras.Model) -> bool:
    """Whether any part of `model` acts differently in training (batch norm, dropout, ...)."""
    layers = model._flatten_layers()
    return any(x._call_has_training_arg for x in layers if type(x) not in _INDIFFERENT)


def _last_layer(model: keras.Model) -> Any:
    layers = getattr(model, "layers", None)
    last = layers[-1] if layers else None
    return _last_layer(last) if isinstance(last, keras.Model) else last


def check_known(what: str, name: str, known: Collection[str]) -> None:
    """Raise `ValueError` with the nearest name if `name` is not among the `known`."""
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"Unknown {what} {name!r}.{hint} Known: {', '.join(known)}.")
