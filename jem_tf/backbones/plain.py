"""Networks of plain layers, smooth and without batch norm, which suits energies.

Not here: the paper's network (`wide_resnet.py`).
"""

import keras
from keras import layers

from jem_tf.backbones.latent import logits_layer

Shape = tuple[int, ...]


def mlp(
    shape: Shape, classes: int, units: int = 256, depth: int = 3, latent: int = 1
) -> keras.Model:
    """Dense layers with SiLU, for vectors and small inputs of any shape.

    ```python
    mlp((64,), classes=10)
    ```

    With `latent` above 1, the last layer is a `LatentDense` with so many values of z.
    """
    hidden = [layers.Dense(units, activation="silu") for _ in range(depth)]
    return keras.Sequential(
        [keras.Input(shape), layers.Flatten(), *hidden, logits_layer(classes, latent)], name="mlp"
    )


def convnet(
    shape: Shape, classes: int, width: int = 32, spectral: bool = False, latent: int = 1
) -> keras.Model:
    """Strided convolutions with SiLU, until the image is at most 2 pixels wide.

    ```python
    convnet((32, 32, 3), classes=10, width=32)
    ```

    With `spectral`, the largest singular value of each convolution is kept at 1. With `latent`
    above 1, the last layer is a `LatentDense` with so many values of z.
    """
    check_image(shape)
    normalise = layers.SpectralNormalization if spectral else lambda layer: layer
    body = [normalise(layers.Conv2D(width, 3, padding="same", activation="silu"))]
    size, filters = min(shape[:2]), width
    while size > 2:
        size, filters = -(-size // 2), min(2 * filters, 8 * width)
        conv = layers.Conv2D(filters, 4, strides=2, padding="same", activation="silu")
        body.append(normalise(conv))
    return keras.Sequential(
        [keras.Input(shape), *body, layers.Flatten(), logits_layer(classes, latent)], name="convnet"
    )


def check_image(shape: Shape) -> None:
    """Raise `ValueError` unless `shape` is the shape of an image."""
    if len(shape) != 3:
        raise ValueError(
            f"`shape` must be (height, width, channels), or use `mlp`. Received: shape={shape}"
        )
