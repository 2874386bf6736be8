"""Several steps of a chain for one pass through most of the network (YOPO, Zhang et al. 2019).

Not here: the steps (`sgld.py`). A network is cut after its first layer, f(x) = rest(first(x)):

    df/dx = J_first(x)^T p,   p = d rest / d first(x)

p is what costs; between two passes it stays as it is and only J_first follows x.
"""

from collections.abc import Callable
from itertools import chain
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
    graph = backbone._functional if isinstance(backbone, keras.Sequential) else backbone
    if not isinstance(graph, keras.src.models.Functional):
        return None
    first = next((layer for layer in graph.layers if layer.weights), None)
    if first is None or isinstance(first, keras.Model):
        return None
    nodes = chain.from_iterable(graph._nodes_by_depth.values())
    calls = [node for node in nodes if node.operation is first]
    if len(calls) != 1:  # a layer that is used twice
        return None
    (hidden,) = calls[0].outputs
    try:
        rest = keras.Model(hidden, graph.outputs[0])
    except ValueError:  # the outputs need more than this layer's
        return None
    return keras.Model(graph.inputs[0], hidden), rest
