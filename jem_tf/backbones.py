"""Networks from inputs to logits, smooth and without batch norm, as energies like it.

Not here: JEM itself; each function returns a plain Keras model.
"""

import keras
from keras import layers

Shape = tuple[int, ...]


def mlp(shape: Shape, classes: int, units: int = 256, depth: int = 3) -> keras.Model:
    """Dense layers with SiLU, for vectors and small inputs of any shape."""
    hidden = [layers.Dense(units, activation="silu") for _ in range(depth)]
    return keras.Sequential(
        [keras.Input(shape), layers.Flatten(), *hidden, layers.Dense(classes)], name="mlp"
    )


def convnet(shape: Shape, classes: int, width: int = 32, spectral: bool = False) -> keras.Model:
    """Strided convolutions with SiLU, until the image is at most 2 pixels wide.

    `spectral` holds the largest singular value of each convolution at 1.
    """
    _check_image(shape)
    normed = layers.SpectralNormalization if spectral else lambda layer: layer
    body = [normed(layers.Conv2D(width, 3, padding="same", activation="silu"))]
    size, filters = min(shape[:2]), width
    while size > 2:
        size, filters = -(-size // 2), min(2 * filters, 8 * width)
        conv = layers.Conv2D(filters, 4, strides=2, padding="same", activation="silu")
        body.append(normed(conv))
    return keras.Sequential(
        [keras.Input(shape), *body, layers.Flatten(), layers.Dense(classes)], name="convnet"
    )


def wide_resnet(shape: Shape, classes: int, depth: int = 28, width: int = 10) -> keras.Model:
    """The paper's WideResNet: no norm, leaky ReLU 0.2, stride on a block's second convolution."""
    _check_image(shape)
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"`depth` must be 6 n + 4, such as 28. Received: depth={depth!r}")

    def conv(filters: int, kernel: int, strides: int = 1) -> layers.Layer:
        return layers.Conv2D(
            filters, kernel, strides=strides, padding="same", kernel_initializer="he_normal"
        )

    def block(x: keras.KerasTensor, filters: int, strides: int) -> keras.KerasTensor:
        y = conv(filters, 3)(layers.LeakyReLU(0.2)(x))
        y = conv(filters, 3, strides)(layers.LeakyReLU(0.2)(y))
        if strides > 1 or x.shape[-1] != filters:
            x = conv(filters, 1, strides)(x)
        return layers.Add()([x, y])

    inputs = keras.Input(shape)
    x = conv(16, 3)(inputs)
    for stage, filters in enumerate((16 * width, 32 * width, 64 * width)):
        for index in range((depth - 4) // 6):
            x = block(x, filters, strides=2 if stage and not index else 1)
    x = layers.GlobalAveragePooling2D()(layers.LeakyReLU(0.2)(x))
    outputs = layers.Dense(classes)(x)
    return keras.Model(inputs, outputs, name=f"wide_resnet_{depth}_{width}")


def _check_image(shape: Shape) -> None:
    if len(shape) != 3:
        raise ValueError(
            f"`shape` must be (height, width, channels), or use `mlp`. Received: shape={shape}"
        )
