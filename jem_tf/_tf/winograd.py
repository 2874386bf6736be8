"""3 x 3 convolutions with a quarter of the multiplications, for training on CPUs.

Winograd's F(4 x 4, 3 x 3) (Lavin and Gray 2016) computes 4 x 4 pixels of y with 36 products instead
of 144, from tiles d of 6 x 6 pixels and kernels g:

    y = A^T [(G g G^T) * (B^T d B)] A

Not here: layers. `faster` makes the convolutions of a Keras network use this algorithm while a
training step is traced. Results differ by rounding only (1e-5 of the largest value).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.cores import on_gpu, split_rows
from jem_tf._tf.private import is_layer_graph

MIN_CHANNEL_PAIRS = 32 * 32  # with fewer pairs of channels, tiles cost more than they save
G = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], np.float32)
G /= 24


@contextmanager
def faster(network: Any) -> Iterator[None]:
    """Inside, use Winograd tiles for the convolutions of `network` that become faster with them."""
    strategy = tf.distribute.get_strategy()
    mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)  # traces replicas in threads
    layers = [] if on_gpu() or mirrored else _suitable_convolutions(network)
    for layer in layers:
        kernel = tf.convert_to_tensor(layer.kernel)
        flipped = tf.transpose(kernel[::-1, ::-1], [0, 1, 3, 2])  # for the gradient
        # Kernels are transformed here, outside of all loops, and not where they are used.
        convolve = partial(_convolve, layer.convolution_op, transform(kernel), transform(flipped))
        vars(layer)["convolution_op"] = convolve
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("convolution_op", None)  # a layer may be in two models


def _suitable_convolutions(network: Any) -> list[keras.layers.Conv2D]:
    """The convolutions that become faster. Only those that Keras' own models call: a custom model
    might change a kernel before it uses it."""
    if not is_layer_graph(network):
        return []
    required = {
        "kernel_size": (3, 3),
        "strides": (1, 1),
        "dilation_rate": (1, 1),
        "padding": "same",
        "data_format": "channels_last",
        "groups": 1,
        "compute_dtype": "float32",
    }
    suitable = []
    for layer in network.layers:
        if type(layer) is keras.layers.Conv2D:
            if (
                all(getattr(layer, name) == value for name, value in required.items())
                and np.prod(layer.kernel.shape[2:]) >= MIN_CHANNEL_PAIRS
            ):
                suitable.append(layer)
        else:
            suitable += _suitable_convolutions(layer)
    return suitable


def _convolve(
    ordinary: Any, forward: tf.Tensor, backward: tf.Tensor, x: tf.Tensor, kernel: Any
) -> Any:
    """A layer's `convolution_op`, with its kernel transformed for the forward and backward pass."""
    if None in x.shape[1:3] or x.dtype != tf.float32:
        return ordinary(x, kernel)

    @tf.custom_gradient
    def convolved(x: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return input_gradient(dy, kernel), _kernel_gradient(x, dy, kernel)

        return convolution(x, forward), gradient

    @tf.custom_gradient  # for second derivatives: `backward` is constant to a tape
    def input_gradient(dy: tf.Tensor, kernel: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def gradient(ddx: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return convolved(ddx, kernel), _kernel_gradient(ddx, dy, kernel)

        return convolution(dy, backward), gradient

    return convolved(x, tf.convert_to_tensor(kernel))


def _kernel_gradient(x: tf.Tensor, dy: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """The gradient with respect to the kernel of a convolution of `x`."""
    return tf.raw_ops.Conv2DBackpropFilter(
        input=x,
        filter_sizes=kernel.shape,
        out_backprop=dy,
        strides=[1, 1, 1, 1],
        padding="SAME",
    )


def transform(kernel: tf.Tensor) -> tf.Tensor:
    """G g G^T for each pair of channels; `[36, channels, filters]`."""
    _, _, channels, filters = kernel.shape
    tiles = np.kron(G, G) @ tf.reshape(kernel, [9, -1])
    return tf.reshape(tiles, [36, channels, filters])


def convolution(x: tf.Tensor, kernels: tf.Tensor) -> tf.Tensor:
    """Convolve `x` `[batch, height, width, channels]` with transformed `kernels`; padding "same".

    Works on parts of the batch, one after another, so that the tiles of a part fit into a cache.
    """
    height, width = x.shape[1:3]
    parts: list[tf.Tensor] = []
    for rows in split_rows(x, min(8, max(1, height * width // 256))):
        with tf.control_dependencies(parts[-1:]):
            part = x[rows]
        parts.append(_from_tiles(tf.matmul(_to_tiles(part), kernels), height, width))
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=0)


# Sums of many parts of a tensor: XLA computes them in one pass over memory instead of one each.
compiled = partial(tf.function, jit_compile=True)


@compiled
def _to_tiles(x: tf.Tensor) -> tf.Tensor:
    """B^T d B of all tiles; `[36, tiles, channels]`."""
    _, height, width, channels = x.shape
    rows, columns = -(-height // 4), -(-width // 4)
    x = tf.pad(x, [[0, 0], [1, 4 * rows + 1 - height], [1, 4 * columns + 1 - width], [0, 0]])
    x = tf.stack(_inputs([x[:, i : i + 4 * rows - 3 : 4] for i in range(6)]))
    x = tf.stack(_inputs([x[:, :, :, j : j + 4 * columns - 3 : 4] for j in range(6)]), axis=1)
    return tf.reshape(x, [36, -1, channels])


@compiled
def _from_tiles(products: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """A^T m A of all tiles, put together to images; `[batch, height, width, filters]`."""
    rows, columns, filters = -(-height // 4), -(-width // 4), products.shape[-1]
    y = tf.reshape(products, [6, 6, -1, rows, columns, filters])
    parts = [tf.stack(_outputs(tf.unstack(row)), axis=3) for row in _outputs(tf.unstack(y))]
    y = tf.reshape(tf.stack(parts, axis=2), [-1, 4 * rows, 4 * columns, filters])
    return y[:, :height, :width]


def _inputs(d: list[tf.Tensor]) -> list[tf.Tensor]:
    """B^T d."""
    even, odd, far, near = d[4] - 4 * d[2], d[3] - 4 * d[1], d[4] - d[2], 2 * (d[3] - d[1])
    first, last = 4 * d[0] - 5 * d[2] + d[4], 4 * d[1] - 5 * d[3] + d[5]
    return [first, even + odd, even - odd, far + near, far - near, last]


def _outputs(m: list[tf.Tensor]) -> list[tf.Tensor]:
    """A^T m."""
    ones, one, twos, two = m[1] + m[2], m[1] - m[2], m[3] + m[4], m[3] - m[4]
    return [m[0] + ones + twos, one + 2 * two, ones + 4 * twos, one + 8 * two + m[5]]
