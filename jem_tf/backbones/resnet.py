"""A small residual network with batch norm, for colour images on ordinary machines.

Not here: the paper's network (`wide_resnet.py`).
"""

import keras
from keras import layers

from jem_tf.backbones.fused import FusedBatchNormalization, silu
from jem_tf.backbones.latent import logits_layer
from jem_tf.backbones.plain import Shape, check_image


def resnet(
    shape: Shape, classes: int, width: int = 32, dtype: str | None = None, latent: int = 1
) -> keras.Model:
    """A ResNet-9: six convolutions and two residual blocks, SiLU and average pooling.

    ```python
    resnet((32, 32, 3), classes=10, width=32)    # 32 to 256 channels, 1.6 million weights
    ```

    `dtype` is the Keras policy of all layers but the last, such as "mixed_bfloat16". Logits are
    always float32: bfloat16 has steps of 0.25 nats at 40. With `latent` above 1, the last layer is
    a `LatentDense` with so many values of z.
    """
    check_image(shape)

    def conv(x: keras.KerasTensor, filters: int, halve: bool = False) -> keras.KerasTensor:
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, dtype=dtype)(x)
        x = FusedBatchNormalization(momentum=0.9, epsilon=1e-5, dtype=dtype)(x)
        x = layers.Activation(silu, dtype=dtype)(x)
        return layers.AveragePooling2D(2, padding="same", dtype=dtype)(x) if halve else x

    def block(x: keras.KerasTensor) -> keras.KerasTensor:
        filters = x.shape[-1]
        return layers.Add(dtype=dtype)([x, conv(conv(x, filters), filters)])

    inputs = keras.Input(shape)
    x = conv(conv(inputs, width), 2 * width, halve=True)
    x = conv(block(x), 4 * width, halve=True)
    x = block(conv(x, 8 * width, halve=True))
    x = layers.GlobalAveragePooling2D(dtype="float32")(x)
    outputs = logits_layer(classes, latent, dtype="float32")(x)
    return keras.Model(inputs, outputs, name=f"resnet_{width}")
