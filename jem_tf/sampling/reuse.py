"""Several steps of a chain for one pass through most of the network (YOPO, Zhang et al. 2019).

Not here: the steps (`sgld.py`). A network is cut after its first layer, f(x) = rest(first(x)):

    df/dx = J_first(x)^T p,   p = d rest / d first(x)

p is what costs; between two passes it stays as it is and only J_first follows x.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

Function = Callable[[tf.Tensor], tf.Tensor]


class Cut(NamedTuple):
    """A function in two parts."""

    first: Function
    rest: Function


def cut(backbone: Any) -> tuple[keras.Model, keras.Model] | None:
    """`backbone` as two Keras models with its layers: up to the first that has weights, and all
    that follows. None where there is no such place: layers of a custom model are not known, those
    of a model inside a model are not taken apart, and a path around the first layer needs x."""
    if not isinstance(backbone, (keras.Sequential, keras.src.models.Functional)):
        return None
    first = next((layer for layer in backbone.layers if layer.weights), None)
    if first is None or isinstance(first, keras.Model) or len(first._inbound_nodes) != 1:
        return None
    try:
        rest = keras.Model(first.output, backbone.outputs[0])
    except ValueError:  # the outputs need more than this layer's
        return None
    return keras.Model(backbone.inputs[0], first.output), rest
