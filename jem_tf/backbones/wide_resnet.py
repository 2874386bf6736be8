"""The paper's network, layer by layer as in the authors' code, so that weights can be exchanged.

Not here: their files (`jem_tf/pytorch/`). Layers have the names of the authors' layers, weights are
initialised as in PyTorch, and strided convolutions pad one pixel on every side.
"""

import keras
from keras import layers

from jem_tf.backbones.actnorm import ActNorm
from jem_tf.backbones.plain import Shape, check_image
from jem_tf.checks import check_known

NORMS = ("batch", "instance", "layer", "act")
TORCH_INIT = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")  # PyTorch's


def wide_resnet(
    shape: Shape, classes: int, depth: int = 28, width: int = 10, norm: str | None = None
) -> keras.Model:
    """A WideResNet with leaky ReLU 0.2 and the stride on the second convolution of a block.

    ```python
    wide_resnet((32, 32, 3), classes=10, depth=28, width=10)     # the paper's
    ```

    The paper's network has no `norm`. "batch" is that of JEM++; "instance", "layer" and "act" are
    the others in the authors' code.
    """
    check_image(shape)
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"`depth` must be 6 n + 4, such as 28. Received: depth={depth!r}")
    if norm is not None:
        check_known("norm", norm, NORMS)

    def conv(x: keras.KerasTensor, filters: int, kernel: int, name: str, strides: int = 1):
        padding = "same"
        if strides > 1 and kernel > 1:  # Keras' "same" pads one side only
            x, padding = layers.ZeroPadding2D(1)(x), "valid"
        return layers.Conv2D(
            filters,
            kernel,
            strides,
            padding,
            kernel_initializer=TORCH_INIT.clone(),
            name=name,
        )(x)

    def activate(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
        return layers.LeakyReLU(0.2)(_normalise(x, norm, name))

    def block(x: keras.KerasTensor, filters: int, strides: int, name: str) -> keras.KerasTensor:
        y = conv(activate(x, f"{name}.bn1"), filters, 3, f"{name}.conv1")
        y = conv(activate(y, f"{name}.bn2"), filters, 3, f"{name}.conv2", strides)
        if strides > 1 or x.shape[-1] != filters:
            x = conv(x, filters, 1, f"{name}.shortcut.0", strides)
        return layers.Add()([x, y])

    inputs = keras.Input(shape)
    x = conv(inputs, 16, 3, "conv1")
    for stage, filters in enumerate((16 * width, 32 * width, 64 * width), start=1):
        for index in range((depth - 4) // 6):
            strides = 2 if stage > 1 and index == 0 else 1
            x = block(x, filters, strides, f"layer{stage}.{index}")
    x = layers.GlobalAveragePooling2D()(activate(x, "bn1"))
    outputs = layers.Dense(classes, kernel_initializer=TORCH_INIT.clone(), name="class_output")(x)
    return keras.Model(inputs, outputs, name=f"wide_resnet_{depth}_{width}")


def _normalise(x: keras.KerasTensor, norm: str | None, name: str) -> keras.KerasTensor:
    if norm is None:
        return x
    if norm == "batch":  # the momentum of the authors' moving statistics
        return layers.BatchNormalization(momentum=0.1, epsilon=1e-5, name=name)(x)
    if norm == "act":
        return ActNorm(name=name)(x)
    groups = 1 if norm == "layer" else x.shape[-1]
    return layers.GroupNormalization(groups, epsilon=1e-5, name=name)(x)
