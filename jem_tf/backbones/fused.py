"""Batch norm and SiLU by operations that are faster on CPUs than those Keras chooses, above all in
bfloat16.

Not here: the network that uses them (`resnet.py`).
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf.portable import is_portable


@keras.saving.register_keras_serializable("jem_tf")
def silu(x: tf.Tensor) -> tf.Tensor:
    """x sigmoid(x), in single precision: TensorFlow computes the sigmoid of bfloat16 slowly."""
    return tf.cast(tf.nn.silu(tf.cast(x, tf.float32)), x.dtype)


@keras.saving.register_keras_serializable("jem_tf")
class FusedBatchNormalization(keras.layers.BatchNormalization):
    """Keras' layer for images `[batch, height, width, channels]`, by one operation of TensorFlow.

    Its moving variance is of the unbiased estimate, as in PyTorch. The last axis is normalised,
    with scale and center.
    """

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        **kwargs: Any,
    ):
        super().__init__(axis, momentum, epsilon, center, scale, **kwargs)
        unsupported = {k: v for k, v in kwargs.items() if v and k in ("renorm", "synchronized")}
        if axis not in (-1, 3) or not (center and scale) or unsupported:
            raise ValueError(
                "FusedBatchNormalization normalises the last axis of images, with scale and "
                f"center, in each replica. Received: {axis=}, {center=}, {scale=}, {unsupported}. "
                "Use keras.layers.BatchNormalization."
            )

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: Any = None) -> tf.Tensor:
        learns = bool(training and self.trainable)
        if is_portable():  # LiteRT does not have the fused operation
            return super().call(inputs, training=learns, mask=mask)
        gamma, beta, moving_mean, moving_variance = (
            tf.cast(variable, tf.float32)
            for variable in (self.gamma, self.beta, self.moving_mean, self.moving_variance)
        )
        outputs, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            inputs,
            scale=gamma,
            offset=beta,
            mean=None if learns else moving_mean,
            variance=None if learns else moving_variance,
            epsilon=self.epsilon,
            is_training=learns,
        )
        if learns:
            for moving, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
                value = tf.cast(value, moving.dtype)
                moving.assign(moving * self.momentum + value * (1.0 - self.momentum))
        return outputs
