"""A folder of images for each class as a data set; corrupt files are found before training."""

import dataclasses
from pathlib import Path

import numpy as np
import tensorflow as tf

from jem_tf.data import arrays, images
from jem_tf.data.dataset import SPLITS, Dataset

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
DEFAULT_SIZE = 32
PIXEL_RANGE = (-1.0, 1.0)  # black and white


def load_folder(path: Path, image_size: int | None, strict: bool) -> Dataset:
    """Read a folder for each class, or `train/`, `test/` and perhaps `validation/` with those.

    Files that cannot be decoded are skipped with a warning, or refused if `strict`.
    """
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
    parts = _without_corrupt([part for part, _ in listed], path, strict)
    size = (image_size or DEFAULT_SIZE,) * 2

    def read(file: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.io.decode_image(tf.io.read_file(file), 3, expand_animations=False)
        return pixels(image, size), label

    rows = arrays.from_arrays(path.name, parts, names, PIXEL_RANGE)
    sets = {s: getattr(rows, s).map(read, tf.data.AUTOTUNE) for s in SPLITS}
    return dataclasses.replace(rows, **sets, shape=(*size, 3))


def pixels(image: tf.Tensor, size: tuple[int, int] | None) -> tf.Tensor:
    """An image of 0 to 255 as [-1, 1], resized if there is a `size`."""
    image = tf.cast(image, tf.float32)
    if size is not None:
        image = tf.image.resize(image, size, antialias=True)
        image = tf.clip_by_value(image, 0.0, 255.0)  # resizing overshoots by rounding
    return image / 127.5 - 1.0


def _without_corrupt(parts: list[arrays.Part], path: Path, strict: bool) -> list[arrays.Part]:
    errors = images.find_corrupt([str(file) for files, _ in parts for file in files])
    total = sum(len(files) for files, _ in parts)
    arrays.report_skipped(f"images in {str(path)!r} cannot be decoded", errors, total, strict)
    kept = [np.array([str(file) not in errors for file in files], bool) for files, _ in parts]
    return [(files[keep], labels[keep]) for (files, labels), keep in zip(parts, kept)]


def _list_images(folder: Path) -> tuple[arrays.Part, tuple[str, ...]]:
    """The files and labels below `folder`, and the names of the classes."""
    names = tuple(sorted(d.name for d in folder.iterdir() if d.is_dir() and d.name[0] != "."))
    files = [
        (str(file), label)
        for label, name in enumerate(names)
        for file in sorted((folder / name).rglob("*"))
        if file.suffix.lower() in SUFFIXES
    ]
    if not files:
        raise ValueError(
            f"{str(folder)!r} must hold a folder of images for each class, "
            f"{', '.join(SUFFIXES)}. "
            f"Received: folders {list(names)}"
        )
    paths, labels = zip(*files)
    return (np.array(paths), np.array(labels)), names
