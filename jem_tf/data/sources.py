"""Data sets by name: digits, files, folders, TensorFlow Datasets; images scaled to [-1, 1].

Not here: out-of-distribution sets (`ood_sets.py`).
"""

import dataclasses
import difflib
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.data.dataset import SPLITS, Dataset
from jem_tf.data.inputs import check_rows

TEST_SHARE = 0.2  # taken from data without a test split
VALIDATION_SHARE = 0.1  # taken from training data without a validation split
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
PIXEL_RANGE = (-1.0, 1.0)  # black and white


def load(
    name: str,
    data_dir: str | None = None,
    image_size: int | None = None,
    labelled: bool = True,
) -> Dataset:
    """Load the data set `name`.

    `name` is "digits" (8x8, comes with scikit-learn), the path of an `.npz` file, of a folder
    with a folder of images for each class, or any image-classification set of TensorFlow
    Datasets, which is read from `data_dir` or TFDS_DATA_DIR, or downloaded there. `image_size`
    resizes images of folders and of TensorFlow Datasets, and is required if they differ in size.
    With `labelled=False`, a set of TensorFlow Datasets may have no classes, such as `celeb_a`; its
    rows then have the label -1.
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
    return _tfds(name, data_dir, image_size, labelled)


def resizes(name: str) -> bool:
    """Whether the images of the data set `name` can be resized when loading."""
    return name != "digits" and Path(name).suffix != ".npz"


class UnknownDataset(ValueError):
    """No data set has this name; the message suggests similar names."""

    def __init__(self, name: str, also: tuple[str, ...] = ()):
        import tensorflow_datasets as tfds

        names = ["digits", *also, *tfds.list_builders()]
        similar = difflib.get_close_matches(name, names, n=3)
        hint = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
        super().__init__(
            f"Unknown data set {name!r}.{hint} Known: 'digits', a path, or any "
            "image-classification set of TensorFlow Datasets."
        )


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = (bunch.images[..., np.newaxis] / 8.0 - 1.0).astype(np.float32)
    train, test = _split_off(x, bunch.target, TEST_SHARE)
    parts = (*_split_off(*train, VALIDATION_SHARE), test)
    return _from_arrays("digits", parts, tuple("0123456789"), PIXEL_RANGE)


def _npz(path: Path) -> Dataset:
    """Read `x_train, y_train, x_test, y_test`, optionally `x_validation, y_validation`, or `x, y`.

    Missing splits are split off. uint8 images are scaled to [-1, 1].
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"Cannot read {str(path)!r}: {error}") from error
    suffixes = ("_train", "_validation", "_test") if "x_train" in arrays else ("",)
    present = [suffix for suffix in suffixes if {f"x{suffix}", f"y{suffix}"} <= set(arrays)]
    if not {"", "_train"} & set(present) or (len(suffixes) > 1 and "_test" not in present):
        raise ValueError(
            f"{str(path)!r} must hold x_train, y_train, x_test and y_test, or x and y. "
            f"Received: {sorted(arrays)}"
        )
    parts = [_check_arrays(arrays[f"x{suffix}"], arrays[f"y{suffix}"], path) for suffix in present]
    if len(parts) == 1:
        parts = _split_off(*parts[0], TEST_SHARE)
    if len(parts) == 2:
        parts = [*_split_off(*parts[0], VALIDATION_SHARE), parts[1]]
    x = parts[0][0]
    pixels = PIXEL_RANGE if x.dtype == np.uint8 and x.ndim == 4 else None
    names = arrays.get("class_names", np.arange(max(int(y.max()) for _, y in parts) + 1))
    parts = [(_scale(x), y) for x, y in parts]
    return _from_arrays(path.stem, parts, tuple(str(name) for name in names), pixels)


def _check_arrays(x: np.ndarray, y: np.ndarray, path: Path) -> tuple[np.ndarray, np.ndarray]:
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(
            f"The labels in {str(path)!r} must be integers [rows]. Received: dtype {y.dtype}, "
            f"shape {y.shape}"
        )
    check_rows(x)
    gray = x.dtype == np.uint8 and x.ndim == 3  # as in mnist.npz
    return x[..., np.newaxis] if gray else x, y


def _folder(path: Path, image_size: int | None) -> Dataset:
    """Read a folder for each class, or `train/`, `test/` and perhaps `validation/` with those."""
    has_splits = (path / "train").is_dir() and (path / "test").is_dir()
    splits = [s for s in SPLITS if (path / s).is_dir()] if has_splits else [""]
    listed = [_list_images(path / s) for s in splits]
    names = listed[0][1]
    for split, (_, other) in zip(splits, listed):
        if other != names:
            raise ValueError(
                f"{str(path)!r} has classes {names} to train on and {other} in {split!r}: they "
                "must be the same."
            )
    parts = [part for part, _ in listed]
    if len(parts) == 1:
        parts = _split_off(*parts[0], TEST_SHARE)
    if len(parts) == 2:
        parts = [*_split_off(*parts[0], VALIDATION_SHARE), parts[1]]
    size = (image_size or 32,) * 2

    def read(file: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.io.decode_image(tf.io.read_file(file), 3, expand_animations=False)
        return _pixels(image, size), label

    rows = _from_arrays(path.name, parts, names, PIXEL_RANGE)
    sets = {s: getattr(rows, s).map(read, tf.data.AUTOTUNE) for s in SPLITS}
    return dataclasses.replace(rows, **sets, shape=(*size, 3))


def _list_images(folder: Path) -> tuple[tuple[np.ndarray, np.ndarray], tuple[str, ...]]:
    """The files and labels below `folder`, and the names of the classes."""
    names = tuple(sorted(d.name for d in folder.iterdir() if d.is_dir() and d.name[0] != "."))
    files = [
        (str(file), label)
        for label, name in enumerate(names)
        for file in sorted((folder / name).rglob("*"))
        if file.suffix.lower() in IMAGE_SUFFIXES
    ]
    if not files:
        raise ValueError(
            f"{str(folder)!r} must hold a folder of images for each class, "
            f"{', '.join(IMAGE_SUFFIXES)}. "
            f"Received: folders {list(names)}"
        )
    paths, labels = zip(*files)
    return (np.array(paths), np.array(labels)), names


def _pixels(image: tf.Tensor, size: tuple[int, int] | None) -> tf.Tensor:
    """An image of 0 to 255 as [-1, 1], resized if there is a `size`."""
    image = tf.cast(image, tf.float32)
    if size is not None:
        image = tf.image.resize(image, size, antialias=True)
        image = tf.clip_by_value(image, 0.0, 255.0)  # resizing overshoots by rounding
    return image / 127.5 - 1.0


def class_names(name: str, data_dir: str | None = None) -> tuple[str, ...]:
    """The classes of the data set `name`; does not download its rows."""
    if not resizes(name) or Path(name).exists():
        return load(name).class_names
    return tuple(_tfds_builder(name, data_dir)[2].names)


def _tfds_builder(
    name: str, data_dir: str | None, labelled: bool = True
) -> tuple[Any, tuple[str, Any], Any]:
    """The TensorFlow Datasets builder of `name`, the key and feature of its images, and its label
    feature; without a label feature only if not `labelled`."""
    import tensorflow_datasets as tfds

    data_dir = data_dir or os.environ.get("TFDS_DATA_DIR")
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError) as error:  # unknown, or not a valid name
        raise UnknownDataset(name) from error
    features = builder.info.features
    keys: tuple[Any, ...] = builder.info.supervised_keys or ()
    kinds = [type(features[key]) for key in keys]
    if kinds == [tfds.features.Image, tfds.features.ClassLabel]:
        return builder, (keys[0], features[keys[0]]), features[keys[1]]
    images = [(key, f) for key, f in features.items() if type(f) is tfds.features.Image]
    if labelled or len(images) != 1:
        raise ValueError(f"Data set {name!r} is not for image classification.")
    return builder, images[0], None


def _tfds(name: str, data_dir: str | None, image_size: int | None, labelled: bool) -> Dataset:
    import tensorflow_datasets as tfds

    builder, (key, image), label = _tfds_builder(name, data_dir, labelled)
    builder.download_and_prepare()
    shape = image.shape
    if image_size is not None:
        shape = (image_size, image_size, shape[-1])
    if None in shape:
        raise ValueError(f"The images of {name!r} differ in size: give `image_size`.")

    def prepare(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.ensure_shape(_pixels(image, shape[:2] if image_size else None), shape), label

    def rows(split: str) -> tf.data.Dataset:
        config = tfds.ReadConfig(try_autocache=False)
        if label is None:
            examples = builder.as_dataset(split=split, read_config=config)
            examples = examples.map(lambda row: (row[key], tf.constant(-1, tf.int64)))
        else:
            examples = builder.as_dataset(split=split, as_supervised=True, read_config=config)
        return examples.map(prepare, tf.data.AUTOTUNE)

    splits = builder.info.splits
    if "train" in splits:
        train, validation, test = map(rows, _tfds_splits(splits))
    else:  # usable as an out-of-distribution set only
        test = rows("test" if "test" in splits else next(iter(splits)))
        train = validation = test.take(0)
    names = () if label is None else tuple(label.names)
    return Dataset(name, train, validation, test, names, tuple(shape), PIXEL_RANGE)


def _tfds_splits(splits: Any) -> tuple[str, str, str]:
    """The splits to train, validate and test on; parts of "train" if a split is missing."""
    if "test" in splits and "validation" in splits:
        return SPLITS
    test = next((s for s in ("test", "validation") if s in splits), None)
    rest = 100 if test else round(100 * (1 - TEST_SHARE))
    cut = round(rest * (1 - VALIDATION_SHARE))
    return f"train[:{cut}%]", f"train[{cut}%:{rest}%]", test or f"train[{rest}%:]"


def _from_arrays(
    name: str,
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    names: tuple[str, ...],
    pixels: tuple[float, float] | None,
) -> Dataset:
    train, validation, test = (
        tf.data.Dataset.from_tensor_slices((x, y.astype(np.int64))) for x, y in parts
    )
    return Dataset(name, train, validation, test, names, tuple(parts[0][0].shape[1:]), pixels)


def _split_off(x: np.ndarray, y: np.ndarray, share: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """The other rows, and a `share` of the rows; stratified by class if there are enough."""
    from sklearn.model_selection import train_test_split

    classes, counts = np.unique(y, return_counts=True)
    enough = counts.min() > 1 and share * len(y) >= len(classes)
    x, x_part, y, y_part = train_test_split(
        x, y, test_size=share, stratify=y if enough else None, random_state=0
    )
    return [(x, y), (x_part, y_part)]


def _scale(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / 127.5 - 1.0 if x.dtype == np.uint8 else x.astype(np.float32)
