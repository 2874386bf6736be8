"""Out-of-distribution sets for a data set.

Not here: how well a model detects them (`evaluation/measures/detection.py`).
"""

from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.data import sources
from jem_tf.data.dataset import Dataset

SYNTHETIC = ("patches", "noise", "constant", "interpolations")


def load(
    name: str,
    like: Dataset,
    n: int,
    seed: int = 0,
    data_dir: str | None = None,
    resize: bool = False,
) -> Any:
    """Load `n` inputs that are out of distribution for `like`, in its shape and range; float32.

    "noise" is uniform, "constant" has one value per channel, "interpolations" are midpoints of two
    test rows of different classes, "patches" are parts of natural photographs. Any other name is
    a data set, whose images must have the shape of those of `like`, or are resized if `resize`.
    """
    rng = np.random.default_rng(seed)
    x, y = like.arrays("test", max(n, 1000))
    if name == "constant" and len(like.shape) == 1:
        raise ValueError("There is no `constant` set for vectors: it would be noise.")
    if name in ("noise", "constant"):
        shape = (n, *like.shape) if name == "noise" else (n, *[1] * (x.ndim - 2), like.shape[-1])
        axes = tuple(range(x.ndim - 1))
        values = rng.uniform(x.min(axes), x.max(axes), shape)
        return np.broadcast_to(values, (n, *like.shape)).astype(np.float32)
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
        return _to_range(_patches(like.shape, n, rng), like.pixel_range)
    size = (
        like.shape[0]
        if resize and like.shape[0] == like.shape[1] and sources.resizes(name)
        else None
    )
    try:
        other = sources.load(name, data_dir, size, labelled=False).arrays("test", n)[0]
    except sources.UnknownDataset as error:
        raise sources.UnknownDataset(name, SYNTHETIC) from error
    if other.shape[1:] != like.shape and not resize:
        raise ValueError(
            f"{name} has inputs of shape {other.shape[1:]}, {like.name} {like.shape}: resize them "
            "with --resize (resize=True)."
        )
    return _to_range(_to_shape(other, like.shape), like.pixel_range)


def companions(like: Dataset) -> tuple[str, ...]:
    """The `SYNTHETIC` sets that make sense beside `like`."""
    if like.pixel_range is not None:
        return SYNTHETIC
    return ("noise", "interpolations") if len(like.shape) == 1 else SYNTHETIC[1:]


def _patches(shape: tuple[int, ...], n: int, rng: np.random.Generator) -> np.ndarray:
    """Square patches of scikit-learn's photographs, from 8 pixels to a third of a photo."""
    from sklearn.datasets import load_sample_images

    photos = load_sample_images().images
    patches = np.empty((n, *shape[:2], 3), np.float32)
    for i in range(n):
        photo = photos[rng.integers(len(photos))]
        side = int(rng.integers(8, min(photo.shape[:2]) // 3))
        top, left = (rng.integers(limit - side) for limit in photo.shape[:2])
        patch = photo[top : top + side, left : left + side]
        patches[i] = tf.image.resize(patch, shape[:2], method="area")
    return _to_shape(patches / 127.5 - 1.0, shape)


def _to_range(x: np.ndarray, pixel_range: tuple[float, float]) -> np.ndarray:
    """Images in [-1, 1], scaled to the values of black and white in `pixel_range`."""
    low, high = pixel_range
    return np.clip((low + (x + 1.0) * ((high - low) / 2.0)).astype(np.float32), low, high)


def _to_shape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Images resized, and their channels averaged or repeated, to `shape`."""
    if x.shape[1:3] != shape[:2]:
        x = tf.image.resize(x, shape[:2], antialias=True).numpy()
    if x.shape[3] != shape[2]:
        x = np.repeat(x.mean(-1, keepdims=True), shape[2], axis=-1)
    return x.astype(np.float32)
