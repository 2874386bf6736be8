"""Data sets by name, images scaled to [-1, 1], and the sets that do not belong with them.

Not here: anything about models. Images are `[height, width, channels]`, labels integers.
"""

import difflib
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.inputs import check_rows

SYNTHETIC = ("patches", "noise", "constant", "interpolations")
SHUFFLED = 50_000  # rows that wait in memory to be drawn
TEST_SHARE = 0.2  # of data that comes without a test split
PIXELS = (-1.0, 1.0)  # black and white


@dataclass(frozen=True)
class Dataset:
    """A classification set: rows `(x, y)` to train on and rows to test on.

    ```python
    digits = data.load("digits")
    model.fit(digits.batches("train", 64, seed=1), validation_data=digits.batches("test", 64))
    x, y = digits.arrays("test", limit=1000)
    ```
    """

    name: str
    train: tf.data.Dataset
    test: tf.data.Dataset
    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    pixel_range: tuple[float, float] | None = None  # of images; None for other inputs

    def batches(
        self, split: str, batch_size: int, seed: int | None = None, augment: bool = False
    ) -> tf.data.Dataset:
        """Batches of "train" or "test", shuffled if there is a `seed`, cropped and flipped if
        `augment`."""
        rows = self._split(split)
        if seed is not None:
            rows = rows.shuffle(min(len(rows), SHUFFLED), seed=seed)
        if augment:
            rows = rows.enumerate().map(_crop_and_flip(seed or 0), tf.data.AUTOTUNE)
        return _shared(rows.batch(batch_size))

    def epochs(
        self, batch_size: int, seed: int, first: int = 0, augment: bool = False
    ) -> tf.data.Dataset:
        """Training batches of epoch `first` and all that follow, for `fit` with
        `steps_per_epoch`: what an epoch holds is a function of `seed` and its number, so that
        a training can go on in another process."""

        window = min(len(self.train), SHUFFLED)

        def epoch(number: tf.Tensor) -> tf.data.Dataset:
            key = seed * 1_000_003 + number
            rows = _shuffled(self.train, window, key)
            if augment:
                rows = rows.enumerate().map(_crop_and_flip(key), tf.data.AUTOTUNE)
            return rows.batch(batch_size)

        numbers = tf.data.Dataset.range(first, np.iinfo(np.int64).max)
        return _shared(numbers.flat_map(epoch))

    def arrays(self, split: str, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """`limit` rows in memory, spread evenly over the split, which may be in order of class."""
        rows = self._split(split)
        if limit is not None:
            rows = rows.shard(stride(int(rows.cardinality()), limit), 0).take(limit)
        batches = list(rows.batch(1024).as_numpy_iterator())
        x = np.concatenate([x for x, _ in batches]).astype(np.float32)
        return x, np.concatenate([y for _, y in batches])

    def _split(self, split: str) -> tf.data.Dataset:
        if split not in ("train", "test"):
            raise ValueError(f'`split` must be "train" or "test". Received: split={split!r}')
        return getattr(self, split)


def stride(total: int, limit: int) -> int:
    """One row in so many gives `limit` rows from all over `total` (negative: unknown)."""
    return max(1, total // limit)


def load(name: str, data_dir: str | None = None, image_size: int | None = None) -> Dataset:
    """The data set `name`.

    `name` is "digits" (8x8, comes with scikit-learn), the path of an `.npz` file, of a folder
    with a folder of images for each class, or any image-classification set of TensorFlow
    Datasets, which `data_dir` or TFDS_DATA_DIR holds or is filled with. `image_size` resizes
    images of folders and of TensorFlow Datasets, and is needed where they differ in size.
    """
    path = Path(name)
    if not resizes(name):
        if image_size is not None:
            raise ValueError(f"`image_size` cannot resize {name!r}. Received: {image_size}")
        return _digits() if name == "digits" else _npz(path)
    if path.is_dir():
        return _folder(path, image_size)
    if path.exists() or os.sep in name:
        raise ValueError(
            f"A data set file must be a folder of images by class, or .npz. Received: {name!r}"
        )
    return _tfds(name, data_dir, image_size)


def ood_set(
    name: str,
    like: Dataset,
    n: int,
    seed: int = 0,
    data_dir: str | None = None,
    resize: bool = False,
) -> Any:
    """`n` inputs that do not belong with `like`, in its shape and range; `[n, ...]` float32.

    "noise" is uniform, "constant" has one value a channel, "interpolations" are midpoints of two
    test rows of different classes, "patches" are pieces of natural photographs; any other name
    is a data set, whose images must have the shape of `like`'s or are given it by `resize`.
    """
    rng = np.random.default_rng(seed)
    x, y = like.arrays("test", max(n, 1000))
    if name == "constant" and len(like.shape) == 1:
        raise ValueError("There is no `constant` set of vectors: it would be noise.")
    if name in ("noise", "constant"):
        shape = (n, *like.shape) if name == "noise" else (n, *[1] * (x.ndim - 2), like.shape[-1])
        axes = tuple(range(x.ndim - 1))
        drawn = rng.uniform(x.min(axes), x.max(axes), shape)
        return np.broadcast_to(drawn, (n, *like.shape)).astype(np.float32)
    if name == "interpolations":
        first = rng.integers(len(x), size=n)
        second = np.array([rng.choice(np.flatnonzero(y != y[i])) for i in first])
        return ((x[first] + x[second]) / 2).astype(np.float32)
    if like.pixel_range is None:
        raise ValueError(
            "Only noise, constant and interpolations exist for inputs that are not known to be "
            f"images, of shape {like.shape}. Received: {name!r}"
        )
    if name == "patches":
        return _in_range(_patches(like.shape, n, rng), like.pixel_range)
    size = like.shape[0] if resize and like.shape[0] == like.shape[1] and resizes(name) else None
    try:
        other = load(name, data_dir, size).arrays("test", n)[0]
    except UnknownDataset as error:
        raise UnknownDataset(name, SYNTHETIC) from error
    if other.shape[1:] != like.shape and not resize:
        raise ValueError(
            f"{name} has inputs of shape {other.shape[1:]}, {like.name} {like.shape}: resize them "
            "with --resize (resize=True)."
        )
    return _in_range(_in_shape(other, like.shape), like.pixel_range)


def companions(like: Dataset) -> tuple[str, ...]:
    """The `SYNTHETIC` sets that make sense beside `like`."""
    if like.pixel_range is not None:
        return SYNTHETIC
    return ("noise", "interpolations") if len(like.shape) == 1 else SYNTHETIC[1:]


class UnknownDataset(ValueError):
    """No data set has this name; the message suggests names that are near."""

    def __init__(self, name: str, also: tuple[str, ...] = ()):
        import tensorflow_datasets as tfds

        names = ["digits", *also, *tfds.list_builders()]
        near = difflib.get_close_matches(name, names, n=3)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        super().__init__(
            f"Unknown data set {name!r}.{hint} Known: 'digits', a path, or any "
            "image-classification set of TensorFlow Datasets."
        )


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = (bunch.images[..., np.newaxis] / 8.0 - 1.0).astype(np.float32)
    names = tuple("0123456789")
    return _from_arrays("digits", _stratified(x, bunch.target), names, PIXELS)


def _npz(path: Path) -> Dataset:
    """`x_train, y_train, x_test, y_test`, or `x, y` to be split; uint8 becomes [-1, 1]."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"Cannot read {str(path)!r}: {error}") from error
    for keys in (("x_train", "y_train", "x_test", "y_test"), ("x", "y")):
        if all(key in arrays for key in keys):
            parts = [arrays[key] for key in keys]
            break
    else:
        raise ValueError(
            f"{str(path)!r} must hold x_train, y_train, x_test and y_test, or x and y. "
            f"Received: {sorted(arrays)}"
        )
    for index in range(1, len(parts), 2):
        if parts[index].ndim != 1 or parts[index].dtype.kind not in "iu":
            raise ValueError(
                f"The labels in {str(path)!r} must be integers [rows]. Received: dtype "
                f"{parts[index].dtype}, shape {parts[index].shape}"
            )
    for index in range(0, len(parts), 2):
        check_rows(parts[index])
        if parts[index].dtype == np.uint8 and parts[index].ndim == 3:  # gray images, as mnist.npz
            parts[index] = parts[index][..., np.newaxis]
    if len(parts) == 2:
        parts = list(_stratified(*parts))
    pixels = PIXELS if parts[0].dtype == np.uint8 and parts[0].ndim == 4 else None
    parts[0], parts[2] = _scaled(parts[0]), _scaled(parts[2])
    names = arrays.get("class_names", np.arange(int(max(parts[1].max(), parts[3].max())) + 1))
    return _from_arrays(path.stem, tuple(parts), tuple(str(name) for name in names), pixels)


def _folder(path: Path, image_size: int | None) -> Dataset:
    """A folder for each class, or `train/` and `test/` with those inside."""
    from keras.utils import image_dataset_from_directory

    size = (image_size or 32,) * 2
    common = {"image_size": size, "batch_size": None, "verbose": False, "seed": 0}
    if (path / "train").is_dir() and (path / "test").is_dir():
        train = image_dataset_from_directory(path / "train", **common)
        test = image_dataset_from_directory(path / "test", shuffle=False, **common)
        if train.class_names != test.class_names:
            raise ValueError(
                f"{str(path)!r} has classes {train.class_names} to train on and "
                f"{test.class_names} to test on: they must be the same."
            )
    else:
        train, test = image_dataset_from_directory(
            path, validation_split=TEST_SHARE, subset="both", **common
        )
    names = tuple(train.class_names)
    scale = lambda x, y: (x / 127.5 - 1.0, tf.cast(y, tf.int64))  # noqa: E731
    return Dataset(path.name, train.map(scale), test.map(scale), names, (*size, 3), PIXELS)


def _tfds(name: str, data_dir: str | None, image_size: int | None) -> Dataset:
    import tensorflow_datasets as tfds

    data_dir = data_dir or os.environ.get("TFDS_DATA_DIR")
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError) as error:  # unknown, or no name at all
        raise UnknownDataset(name) from error
    features = [builder.info.features[key] for key in builder.info.supervised_keys or ()]
    if [type(f) for f in features] != [tfds.features.Image, tfds.features.ClassLabel]:
        raise ValueError(f"Data set {name!r} is not for image classification.")
    image, label = features
    builder.download_and_prepare()
    shape = image.shape
    if image_size is not None:
        shape = (image_size, image_size, shape[-1])
    if None in shape:
        raise ValueError(f"The images of {name!r} differ in size: give `image_size`.")

    def prepare(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.cast(image, tf.float32)
        if image_size is not None:
            image = tf.image.resize(image, shape[:2], antialias=True)
            image = tf.clip_by_value(image, 0.0, 255.0)  # it rounds beyond white
        return tf.ensure_shape(image / 127.5 - 1.0, shape), label

    splits = [s for s in ("train", "test", "validation") if s in builder.info.splits]
    if len(splits) == 1:
        cut = round(100 * (1 - TEST_SHARE))
        splits = [f"{splits[0]}[:{cut}%]", f"{splits[0]}[{cut}%:]"]
    reading = tfds.ReadConfig(try_autocache=False)
    train, test = (
        builder.as_dataset(split=split, as_supervised=True, read_config=reading).map(
            prepare, tf.data.AUTOTUNE
        )
        for split in splits[:2]
    )
    return Dataset(name, train, test, tuple(label.names), tuple(shape), PIXELS)


def _from_arrays(
    name: str,
    parts: tuple[np.ndarray, ...],
    names: tuple[str, ...],
    pixels: tuple[float, float] | None,
) -> Dataset:
    x, y, x_test, y_test = parts
    slices = tf.data.Dataset.from_tensor_slices
    train, test = slices((x, y.astype(np.int64))), slices((x_test, y_test.astype(np.int64)))
    return Dataset(name, train, test, names, tuple(x.shape[1:]), pixels)


def _stratified(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    from sklearn.model_selection import train_test_split

    x, x_test, y, y_test = train_test_split(x, y, test_size=TEST_SHARE, stratify=y, random_state=0)
    return x, y, x_test, y_test


def _scaled(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / 127.5 - 1.0 if x.dtype == np.uint8 else x.astype(np.float32)


def _shared(batches: tf.data.Dataset) -> tf.data.Dataset:
    """`batches` read ahead; of which, with more than one worker, each takes its rows."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)


def _shuffled(rows: tf.data.Dataset, window: int, key: tf.Tensor) -> tf.data.Dataset:
    """`rows.shuffle(window, key)`, which takes no tensor as its seed where the global seed is 0,
    and makes the order depend on the global seed."""
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


def _crop_and_flip(seed: int | tf.Tensor) -> Callable:
    """The paper's augmentation: a crop after reflecting 4 pixels at the border, and a flip."""

    def augment(index: tf.Tensor, row: tuple) -> tuple[tf.Tensor, tf.Tensor]:
        x, y = row
        key = tf.stack([tf.cast(seed, tf.int64), index])
        padded = tf.pad(x, [[4, 4], [4, 4], [0, 0]], "REFLECT")
        crop = tf.image.stateless_random_crop(padded, x.shape, key)
        return tf.image.stateless_random_flip_left_right(crop, key), y

    return augment


def _patches(shape: tuple[int, ...], n: int, rng: np.random.Generator) -> np.ndarray:
    """Squares of scikit-learn's photographs, from 8 pixels to a third of a photo wide."""
    from sklearn.datasets import load_sample_images

    photos = load_sample_images().images
    patches = np.empty((n, *shape[:2], 3), np.float32)
    for i in range(n):
        photo = photos[rng.integers(len(photos))]
        side = int(rng.integers(8, min(photo.shape[:2]) // 3))
        top, left = (rng.integers(limit - side) for limit in photo.shape[:2])
        patch = photo[top : top + side, left : left + side]
        patches[i] = tf.image.resize(patch, shape[:2], method="area")
    return _in_shape(patches / 127.5 - 1.0, shape)


def resizes(name: str) -> bool:
    """Whether the data set `name` comes in any size."""
    return name != "digits" and Path(name).suffix != ".npz"


def _in_range(x: np.ndarray, pixel_range: tuple[float, float]) -> np.ndarray:
    """Images in [-1, 1] between the numbers for black and white."""
    low, high = pixel_range
    return np.clip((low + (x + 1.0) * ((high - low) / 2.0)).astype(np.float32), low, high)


def _in_shape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Images resized, and their channels averaged or repeated, to `shape`."""
    if x.shape[1:3] != shape[:2]:
        x = tf.image.resize(x, shape[:2], antialias=True).numpy()
    if x.shape[3] != shape[2]:
        x = np.repeat(x.mean(-1, keepdims=True), shape[2], axis=-1)
    return x.astype(np.float32)
