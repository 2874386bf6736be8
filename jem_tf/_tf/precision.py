"""Networks in bfloat16, for hardware that computes it faster than single precision.

Not here: what uses it (`model/energy_model.py`). The layer that returns the logits stays in single
precision: bfloat16 has steps of 0.25 at 40.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf.private import Convolution, flatten_layers, is_layer_graph

CPU_FLAGS = {"avx512_bf16", "amx_bf16"}
GPU_CAPABILITY = (8, 0)  # Ampere


@cache
def hardware_gains() -> bool:
    """Whether the GPU, or without one the CPU, has instructions for bfloat16."""
    if gpus := tf.config.get_visible_devices("GPU"):
        details = map(tf.config.experimental.get_device_details, gpus)
        return all(d.get("compute_capability", (0, 0)) >= GPU_CAPABILITY for d in details)
    try:
        return bool(CPU_FLAGS & set(Path("/proc/cpuinfo").read_text().split()))
    except OSError:  # not Linux
        return False


def suits(network: Any) -> bool:
    """Whether `in_bfloat16` has an effect on `network`: on convolutions of Keras' own models.

    It is not known which layer of a custom model returns the logits. Networks of vectors gain
    little, and in features far from zero bfloat16 would hide what changes.
    """
    return is_layer_graph(network) and bool(_body(network))


def in_bfloat16(network: keras.Model) -> Callable[[tf.Tensor], tf.Tensor]:
    """`network` at inference in bfloat16, from its first convolution to its last layer with
    weights, which stays in single precision. Kernels are cast now, and not in each call."""
    body = _body(network)
    weights = {id(weight): weight for layer in body for weight in layer.weights}
    kernels = [(w, tf.cast(w, tf.bfloat16)) for w in weights.values() if len(w.shape) > 1]

    def call(x: tf.Tensor) -> tf.Tensor:
        with keras.StatelessScope() as scope, _policy(body, "mixed_bfloat16"):
            for kernel in kernels:
                scope.add_update(kernel)
            return network(x, training=False)

    return call


def _body(network: keras.Model) -> list[keras.layers.Layer]:
    """The layers of `network` that may be in bfloat16, with all layers inside them."""
    layers = _in_order(network)
    inner = [flatten_layers(layer) for layer in layers]
    convolutions = [
        i for i, parts in enumerate(inner) if any(isinstance(part, Convolution) for part in parts)
    ]
    weighted = [i for i, layer in enumerate(layers) if layer.weights]
    if not convolutions:
        return []
    parts = [part for parts in inner[convolutions[0] : weighted[-1]] for part in parts]
    return [part for part in parts if part.compute_dtype == "float32"]


def _in_order(network: keras.Model) -> list[keras.layers.Layer]:
    """The layers of `network` in the order of their calls, those of models inside it included."""
    parts = [_in_order(x) if is_layer_graph(x) else [x] for x in network.layers]
    return [layer for part in parts for layer in part]


@contextmanager
def _policy(layers: list[keras.layers.Layer], policy: str) -> Iterator[None]:
    """Inside, `layers` have the Keras policy `policy`."""
    saved = [(layer, layer.dtype_policy) for layer in layers]
    for layer in layers:
        layer.dtype_policy = policy
    try:
        yield
    finally:
        for layer, before in saved:
            layer.dtype_policy = before
