"""The latent variable z of a backbone that ends in `LatentDense`: pairs (y, z) as classes.

    E(x, y, z) = -f(x)[y, z]

The pair (y, z) has the number y * M + z, so that energies and chains of pairs are those of classes.
Not here: the layer (`backbones/latent.py`).
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf import private
from jem_tf.backbones.latent import LatentDense
from jem_tf.data.labels import class_indices
from jem_tf.model.backbone import call_allowing_empty

_NONE = (
    "needs a backbone with a latent variable: a Sequential or functional model that ends in "
    "`jem_tf.backbones.LatentDense`, such as mlp(shape, classes, latent=4)"
)


class Latent:
    """The layers of `backbone` before z is summed out; they share its weights."""

    def __init__(self, body: keras.Model, layer: LatentDense):
        self._body, self._layer = body, layer
        self.values = layer.latent  # the number of values of z, M

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """f(x)[y, z] at inference, for any number of rows; `[batch, classes, M]`."""
        return tf.cast(call_allowing_empty(self._call, x), tf.float32)

    def _call(self, x: tf.Tensor) -> tf.Tensor:
        return self._layer.pairs(self._body(x, training=False))

    def pair_logits(self, x: tf.Tensor) -> tf.Tensor:
        """f(x)[y, z] as logits of pairs; `[batch, classes * M]`."""
        return tf.reshape(self.logits(x), [-1, self._layer.units * self.values])

    def pair_indices(self, labels: Any, latent: Any, rows: Any) -> Any:
        """The numbers of the pairs of `rows`, or of so many; `ValueError` without labels."""
        if labels is None:
            raise ValueError(
                "`latent` is a kind of inputs of a class: give the class as well. "
                f"Received: latent={latent!r} without a class"
            )
        if not tf.executing_eagerly():
            return labels * self.values + latent
        n = rows if isinstance(rows, int) else len(rows)
        return labels * self.values + class_indices(latent, n, self.values, "latent")


def find_latent(backbone: keras.Model, what: str) -> Latent:
    """The latent variable of `backbone`; `ValueError` that says `what` needs one if it has none."""
    found = _split(backbone)
    if found is None:
        raise ValueError(f"{what} {_NONE}. Received: {backbone.name!r}")
    return Latent(*found)


def num_latent(backbone: keras.Model) -> int | None:
    """The number of values of the latent variable of `backbone`; None without one."""
    found = _split(backbone)
    return None if found is None else found[1].latent


def _split(model: Any) -> tuple[keras.Model, LatentDense] | None:
    """The layers before the last one and the last one, if that is a `LatentDense`."""
    if not private.is_layer_graph(model) or not model.built:
        return None
    layer, (before, *_) = private.producer(model.outputs[0])
    if isinstance(layer, LatentDense):
        return keras.Model(model.inputs[0], before), layer
    inner = _split(layer)  # a model in a model
    return None if inner is None else (keras.Model(model.inputs[0], inner[0](before)), inner[1])
