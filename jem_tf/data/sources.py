"""Data sets by name: digits, files, folders, TensorFlow Datasets; images scaled to [-1, 1].

Not here: out-of-distribution sets (`ood_sets.py`).
"""

import difflib
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.data.arrays import TEST_SHARE, VALIDATION_SHARE, from_arrays, scale
from jem_tf.data.dataset import SPLITS, Dataset
from jem_tf.data.folders import PIXEL_RANGE, load_folder, pixels
from jem_tf.data.inputs import check_rows
from jem_tf.data.labels import check_labels
from jem_tf.data.tables import SUFFIXES as TABLE_SUFFIXES
from jem_tf.data.tables import load_table

MAX_CLASSES = 2**31  # of an .npz file that does not name them


def load(
    name: str,
    data_dir: str | None = None,
    image_size: int | None = None,
    labelled: bool = True,
    label: str | None = None,
    columns: Sequence[str] | None = None,
    strict: bool = False,
) -> Dataset:
    """Load the data set `name`.

    ```python
    load("digits")
    ```

    Args:
        name: "digits" (8x8, comes with scikit-learn), the path of an `.npz`, `.csv` or `.parquet`
            file, of a folder with a folder of images for each class, or any image-classification
            set of TensorFlow Datasets.
        data_dir: where sets of TensorFlow Datasets are, or are downloaded to; default:
            TFDS_DATA_DIR.
        image_size: resizes images of folders and of TensorFlow Datasets; required if they differ
            in size.
        labelled: if False, a set of TensorFlow Datasets may have no classes, such as `celeb_a`;
            its rows then have the label -1.
        label: the column of labels of a table; default: "label".
        columns: the inputs of a table; default: all other columns.
        strict: refuse image files that cannot be decoded, and rows of tables with missing values;
            default: skip them, with a warning that names them.
    """
    path = Path(name)
    if not resizes(name):
        if image_size is not None:
            raise ValueError(f"`image_size` cannot resize {name!r}. Received: {image_size}")
        if path.suffix in TABLE_SUFFIXES:
            return load_table(path, label, columns, strict)
        return _digits() if name == "digits" else _npz(path)
    if path.is_dir():
        return load_folder(path, image_size, strict)
    if os.sep in name and not path.exists():
        raise ValueError(
            f"There is no file or folder {name!r}. A data set is a folder of images by class, an "
            ".npz, .csv or .parquet file, or a name."
        )
    if path.exists():
        raise ValueError(
            "A data set file must be a folder of images by class, .npz, .csv or .parquet. "
            f"Received: {name!r}"
        )
    return _tfds(name, data_dir, image_size, labelled)


def resizes(name: str) -> bool:
    """Whether the images of the data set `name` can be resized when loading."""
    return name != "digits" and Path(name).suffix not in (".npz", *TABLE_SUFFIXES)


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
    return from_arrays("digits", [(x, bunch.target)], tuple("0123456789"), PIXEL_RANGE)


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
    names = arrays.get("class_names")
    try:
        parts = [_check_arrays(arrays[f"x{s}"], arrays[f"y{s}"], names) for s in present]
    except ValueError as error:
        raise ValueError(f"In {str(path)!r}: {error}") from error
    x = parts[0][0]
    pixels = PIXEL_RANGE if x.dtype == np.uint8 and x.ndim == 4 else None
    if names is None:
        names = np.arange(max(int(y.max(initial=0)) for _, y in parts) + 1)
    parts = [(scale(x), y) for x, y in parts]
    return from_arrays(path.stem, parts, tuple(str(name) for name in names), pixels)


def _check_arrays(x: np.ndarray, y: np.ndarray, names: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows and integer labels; without `names`, numbers up to the largest label are classes."""
    unnamed = y.shape[1] if y.ndim == 2 and y.shape[1] > 1 else MAX_CLASSES
    y = check_labels(y, unnamed if names is None else len(names))
    check_rows(x)
    gray = x.dtype == np.uint8 and x.ndim == 3  # as in mnist.npz
    return x[..., np.newaxis] if gray else x, y


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
        return tf.ensure_shape(pixels(image, shape[:2] if image_size else None), shape), label

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
