"""A classification data set: its splits, in batches, in epochs, in memory.

Not here: where it comes from (`sources.py`), anything about models. Images are `[height, width,
channels]`, labels integers.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from jem_tf.data import augmentation

SPLITS = ("train", "validation", "test")
SHUFFLE_ROWS = 50_000  # rows in the shuffle buffer, at most


@dataclass(frozen=True)
class Dataset:
    """A classification data set: rows `(x, y)` for training, for validation, and for the test.

    ```python
    digits = data.load("digits")
    model.fit(digits.batches("train", 64, seed=1), validation_data=digits.batches("validation", 64))
    x, y = digits.arrays("test", limit=1000)
    ```
    """

    name: str
    train: tf.data.Dataset
    validation: tf.data.Dataset
    test: tf.data.Dataset
    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    pixel_range: tuple[float, float] | None = None  # of images; None for other inputs

    def batches(
        self, split: str, batch_size: int, seed: int | None = None, augment: bool | str = False
    ) -> tf.data.Dataset:
        """Batches of a split, shuffled if there is a `seed`, cropped and flipped if `augment` is
        True, only cropped if it is "crop", and partly covered as well if it is "cutout"."""
        rows = self._split(split)
        if seed is not None:
            rows = rows.shuffle(min(len(rows), SHUFFLE_ROWS), seed=seed)
        if augment:
            rows = rows.enumerate().map(_augment(seed or 0, augment), tf.data.AUTOTUNE)
        return _prefetch(rows.batch(batch_size))

    def epochs(
        self, batch_size: int, seed: int, first: int = 0, augment: bool | str = False
    ) -> tf.data.Dataset:
        """Training batches of epoch `first` and all later ones, for `fit` with `steps_per_epoch`.

        The content of an epoch depends on `seed` and its number only, so that a run can be
        resumed in another process.
        """

        window = min(len(self.train), SHUFFLE_ROWS)

        def epoch(number: tf.Tensor) -> tf.data.Dataset:
            key = seed * 1_000_003 + number
            rows = _shuffled(self.train, window, key)
            if augment:
                rows = rows.enumerate().map(_augment(key, augment), tf.data.AUTOTUNE)
            return rows.batch(batch_size)

        numbers = tf.data.Dataset.range(first, np.iinfo(np.int64).max)
        return _prefetch(numbers.flat_map(epoch))

    def arrays(self, split: str, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """`limit` rows in memory, spread evenly over the split, which may be ordered by class."""
        rows = self._split(split)
        if limit is not None:
            rows = rows.shard(stride(int(rows.cardinality()), limit), 0).take(limit)
        batches = list(rows.batch(1024).as_numpy_iterator())
        x = np.concatenate([x for x, _ in batches]).astype(np.float32)
        return x, np.concatenate([y for _, y in batches])

    def with_pixels(self, low: float, high: float) -> "Dataset":
        """The same images with black at `low` and white at `high`."""
        if self.pixel_range is None:
            raise ValueError(f"{self.name} has no images whose pixels could have another range.")
        old_low, old_high = self.pixel_range
        factor = (high - low) / (old_high - old_low)

        def scale(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return low + (x - old_low) * factor, y

        splits = {split: getattr(self, split).map(scale, tf.data.AUTOTUNE) for split in SPLITS}
        return dataclasses.replace(self, **splits, pixel_range=(float(low), float(high)))

    def _split(self, split: str) -> tf.data.Dataset:
        if split not in SPLITS:
            raise ValueError(f"`split` must be one of {SPLITS}. Received: split={split!r}")
        return getattr(self, split)


def stride(total: int, limit: int) -> int:
    """The stride that takes about `limit` rows evenly from `total` (negative: unknown)."""
    return max(1, total // limit)


def _prefetch(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Prefetch `batches`; with more than one worker, each takes its share of the rows."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


def _shuffled(rows: tf.data.Dataset, window: int, key: tf.Tensor) -> tf.data.Dataset:
    """Like `rows.shuffle(window, key)`, which does not accept a tensor as its seed if the global
    seed is 0, and whose order depends on the global seed."""
    spec = rows.element_spec
    parts = tf.nest.flatten(spec)
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(rows),
        buffer_size=window,
        seed=key,
        seed2=1,
        output_types=[part.dtype for part in parts],
        output_shapes=[part.shape for part in parts],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, spec)


def _augment(seed: int | tf.Tensor, kind: bool | str) -> Callable:
    """A map of enumerated rows: each image is augmented by its own seed."""

    def augment(index: tf.Tensor, row: tuple) -> tuple[tf.Tensor, tf.Tensor]:
        x, y = row
        own = tf.stack([tf.cast(seed, tf.int64), index])
        x = augmentation.crop(x, own, flip=kind != "crop")
        if kind == "cutout":  # with a seed of its own: its square must not depend on the flip
            x = augmentation.cutout(x, tf.random.experimental.stateless_fold_in(own, 1))
        return x, y

    return augment
