"""The first layer of an image network: a convolution with the principal components of patches.

    W = V (D + epsilon)^(-1/2),   V D V' the covariance of all patches of the first rows

The outputs are W'p and -W'p for each patch p. They are uncorrelated, and their variances are
v / (v + epsilon) for patches with the variances v: fine structure counts nearly as much as coarse
structure. The kernel is not trained.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf.backbones.data_dependent import DataDependent
from jem_tf.checks import check_positive


@keras.saving.register_keras_serializable("jem_tf")
class WhitenedPatches(DataDependent, keras.layers.Conv2D):
    """A `Conv2D` that whitens patches; `[n, h, w, c]` to `[n, h, w, filters]`.

    ```python
    keras.Sequential(
        [keras.Input((32, 32, 3)), WhitenedPatches(54, 3), keras.layers.Conv2D(64, 3)]
    )
    ```

    `JEM.fit` computes the kernel from the first rows of the data. Before that it is random, and it
    stays so in a network that was trained in another way.

    Args:
        filters: twice the number of principal components: those with the largest variance, and
            the same with the other sign. At most 2 x the values of a patch.
        kernel_size: of the patches, in pixels.
        epsilon: added to the variances, for pixels of about -1 to 1. It limits how much weak
            components are amplified.
        kwargs: of `keras.layers.Conv2D`, such as `strides` and `padding`, which is "same" here.
    """

    # Also after `model.trainable = True`.
    trainable = property(lambda self: False, lambda self, value: None)

    def __init__(
        self, filters: int, kernel_size: int | tuple = 3, epsilon: float = 1e-2, **kwargs: Any
    ):
        defaults = {"padding": "same", "use_bias": False}
        super().__init__(filters, kernel_size, **{**defaults, **kwargs, "trainable": False})
        check_positive("epsilon", epsilon)
        for name, value in (("groups", 1), ("dilation_rate", (1, 1))):
            if getattr(self, name) != value:
                raise ValueError(
                    f"`WhitenedPatches` has {name}={value}. Received: {getattr(self, name)}"
                )
        self.epsilon = float(epsilon)

    def build(self, input_shape: Any) -> None:
        most = 2 * int(np.prod(self.kernel_size)) * input_shape[-1]
        if self.filters % 2 or self.filters > most:
            raise ValueError(
                f"`filters` must be even and at most {most}, twice the values of a patch. "
                f"Received: filters={self.filters}"
            )
        super().build(input_shape)

    def initialise(self, inputs: tf.Tensor) -> None:
        size = [1, *self.kernel_size, 1]
        fits = all(a >= b for a, b in zip(inputs.shape[1:3], self.kernel_size))
        padding = "VALID" if fits else "SAME"
        patches = tf.image.extract_patches(inputs, size, [1] * 4, [1] * 4, padding)
        patches = tf.cast(tf.reshape(patches, [-1, patches.shape[-1]]), tf.float32).numpy()
        variances, components = np.linalg.eigh(np.atleast_2d(np.cov(patches.T)))
        kept = components / np.sqrt(np.maximum(variances, 0.0) + self.epsilon)
        kept = kept[:, ::-1][:, : self.filters // 2]  # the largest first
        both = np.concatenate([kept, -kept], axis=1)
        self.kernel.assign(both.reshape(self.kernel.shape))

    def transform(self, inputs: tf.Tensor) -> tf.Tensor:
        return keras.layers.Conv2D.call(self, inputs)

    # `Conv2D` saves its kernel and bias only.
    save_own_variables = keras.layers.Layer.save_own_variables
    load_own_variables = keras.layers.Layer.load_own_variables

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}
