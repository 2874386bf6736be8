"""The paper's augmentation: a random crop after reflecting 4 pixels at the border, and a flip. For
classifiers, also a covered square.

In the data set it is for the classifier and the density; as a layer of a model (`RandomCrop`), for
the classifier alone.
"""

from typing import Any

import keras
import tensorflow as tf

BORDER = 4  # pixels
CUTOUT = 0.25  # side of the square that `cutout` covers, in sides of the image


def crop(image: tf.Tensor, seed: tf.Tensor, flip: bool) -> tf.Tensor:
    """Crop, and perhaps flip, one image `[height, width, channels]`; `seed` is `[2]`."""
    padded = tf.pad(image, [[BORDER, BORDER], [BORDER, BORDER], [0, 0]], "REFLECT")
    cropped = tf.image.stateless_random_crop(padded, image.shape, seed)
    return tf.image.stateless_random_flip_left_right(cropped, seed) if flip else cropped


def cutout(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Cover a square of `image` with its mean color (DeVries and Taylor, arXiv 1708.04552).

    The centre of the square is any pixel, so that a part of it may be outside.
    """
    sides = image.shape[:2]
    centre = tf.random.stateless_uniform([2], seed, 0.0, tf.cast(sides, tf.float32))
    rows, columns = (
        tf.abs(tf.range(side, dtype=tf.float32) + 0.5 - centre[axis]) < CUTOUT * side / 2
        for axis, side in enumerate(sides)
    )
    covered = (rows[:, tf.newaxis] & columns)[..., tf.newaxis]
    return tf.where(covered, tf.reduce_mean(image, axis=[0, 1]), image)


@keras.saving.register_keras_serializable("jem_tf")
class RandomCrop(keras.layers.Layer):
    """`crop` as a Keras layer for batches of images, active in training only.

    ```python
    JEM(backbone, augmentation=RandomCrop(flip=True))
    ```
    """

    def __init__(self, flip: bool = False, seed: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.flip, self.seed = flip, seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training:
            return inputs
        rows = tf.shape(inputs)[0]
        first = tf.cast(self.seed_generator.next(), tf.int64)
        seeds = tf.stack([tf.fill([rows], first[0]), first[1] + tf.range(rows, dtype=tf.int64)], 1)
        return tf.map_fn(
            lambda row: crop(row[0], row[1], self.flip),
            (inputs, seeds),
            fn_output_signature=tf.TensorSpec(inputs.shape[1:], inputs.dtype),
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "flip": self.flip, "seed": self.seed}
