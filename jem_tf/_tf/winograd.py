"""Convolutions of 3 x 3 with a quarter of the multiplications, for training on CPUs.

Winograd's F(4 x 4, 3 x 3) (Lavin and Gray 2016): 4 x 4 pixels of y by 36 products, not 144, from
tiles d of 6 x 6 pixels and kernels g:

    y = A^T [(G g G^T) * (B^T d B)] A

Not here: layers. `faster` lends the convolutions of a Keras network this way of calculating while
a training step is traced; but for rounding (1e-5 of the largest value) they give what they gave.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.cores import on_gpu, shares_of

FEWEST = 32 * 32  # pairs of channels: with fewer, tiles cost more than they save
G = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], np.float32)
G /= 24


@contextmanager
def faster(network: Any) -> Iterator[None]:
    """Inside, convolutions of `network` that gain by it are calculated in this way."""
    replicas = tf.distribute.get_strategy()
    several = isinstance(replicas, tf.distribute.MirroredStrategy)  # they are traced in threads
    layers = [] if on_gpu() or several else _convolutions(network)
    for layer in layers:
        kernel = tf.convert_to_tensor(layer.kernel)
        turned = tf.transpose(kernel[::-1, ::-1], [0, 1, 3, 2])  # the gradient's
        # Here and not where they are used: outside of all loops.
        convolve = partial(_convolve, layer.convolution_op, transform(kernel), transform(turned))
        vars(layer)["convolution_op"] = convolve
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("convolution_op", None)  # a layer may be in two models


def _convolutions(network: Any) -> list[keras.layers.Conv2D]:
    """Those that can, and gain by it. Only where nothing but Keras' own models call them: another
    caller might change their kernels on the way."""
    if not isinstance(network, (keras.Sequential, keras.src.models.Functional)):
        return []
    usual = {
        "kernel_size": (3, 3),
        "strides": (1, 1),
        "dilation_rate": (1, 1),
        "padding": "same",
        "data_format": "channels_last",
        "groups": 1,
        "compute_dtype": "float32",
    }
    found = []
    for layer in network.layers:
        if type(layer) is keras.layers.Conv2D:
            if (
                all(getattr(layer, name) == value for name, value in usual.items())
                and np.prod(layer.kernel.shape[2:]) >= FEWEST
            ):
                found.append(layer)
        else:
            found += _convolutions(layer)
    return found


def _convolve(usual: Any, forth: tf.Tensor, back: tf.Tensor, x: tf.Tensor, kernel: Any) -> Any:
    """A layer's `convolution_op`, with its kernel transformed for the way forth and back."""
    if None in x.shape[1:3]:
        return usual(x, kernel)

    @tf.custom_gradient
    def convolved(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            by_kernel = tf.raw_ops.Conv2DBackpropFilter(
                input=x,
                filter_sizes=kernel.shape,
                out_backprop=dy,
                strides=[1, 1, 1, 1],
                padding="SAME",
            )
            return convolution(dy, back), by_kernel

        return convolution(x, forth), gradient

    return convolved(x, tf.convert_to_tensor(kernel))


def transform(kernel: tf.Tensor) -> tf.Tensor:
    """G g G^T for each pair of channels; `[36, channels, filters]`."""
    _, _, channels, filters = kernel.shape
    tiles = np.kron(G, G) @ tf.reshape(kernel, [9, -1])
    return tf.reshape(tiles, [36, channels, filters])


def convolution(x: tf.Tensor, kernels: tf.Tensor) -> tf.Tensor:
    """`x` `[batch, height, width, channels]`, with zeros around it, by transformed `kernels`; in
    parts, one after another, whose tiles find room in a cache."""
    height, width = x.shape[1:3]
    parts: list[tf.Tensor] = []
    for rows in shares_of(x, min(8, max(1, height * width // 256))):
        with tf.control_dependencies(parts[-1:]):
            part = x[rows]
        parts.append(_out(tf.matmul(_into(part), kernels), height, width))
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=0)


# Sums of many parts of a tensor: compiled, they take one pass over memory and not one each.
compiled = partial(tf.function, jit_compile=True)


@compiled
def _into(x: tf.Tensor) -> tf.Tensor:
    """B^T d B of all tiles; `[36, tiles, channels]`."""
    _, height, width, channels = x.shape
    rows, columns = -(-height // 4), -(-width // 4)
    x = tf.pad(x, [[0, 0], [1, 4 * rows + 1 - height], [1, 4 * columns + 1 - width], [0, 0]])
    x = tf.stack(_tiles([x[:, i : i + 4 * rows - 3 : 4] for i in range(6)]))
    x = tf.stack(_tiles([x[:, :, :, j : j + 4 * columns - 3 : 4] for j in range(6)]), axis=1)
    return tf.reshape(x, [36, -1, channels])


@compiled
def _out(products: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """A^T m A of all tiles as one image each; `[batch, height, width, filters]`."""
    rows, columns, filters = -(-height // 4), -(-width // 4), products.shape[-1]
    y = tf.reshape(products, [6, 6, -1, rows, columns, filters])
    parts = [tf.stack(_pixels(tf.unstack(row)), axis=3) for row in _pixels(tf.unstack(y))]
    y = tf.reshape(tf.stack(parts, axis=2), [-1, 4 * rows, 4 * columns, filters])
    return y[:, :height, :width]


def _tiles(d: list[tf.Tensor]) -> list[tf.Tensor]:
    """B^T d."""
    even, odd, far, near = d[4] - 4 * d[2], d[3] - 4 * d[1], d[4] - d[2], 2 * (d[3] - d[1])
    first, last = 4 * d[0] - 5 * d[2] + d[4], 4 * d[1] - 5 * d[3] + d[5]
    return [first, even + odd, even - odd, far + near, far - near, last]


def _pixels(m: list[tf.Tensor]) -> list[tf.Tensor]:
    """A^T m."""
    ones, one, twos, two = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [m[0] + ones + twos, one + 2 * two, ones + 4 * twos, one + 8 * two + m[5]]
