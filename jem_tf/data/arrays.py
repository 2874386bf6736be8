"""Data sets from arrays in memory: splits, scaling, and what happens to invalid rows.

Not here: where the arrays come from (`sources.py`, `folders.py`).
"""

import warnings
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from jem_tf.data.dataset import Dataset

TEST_SHARE = 0.2  # taken from data without a test split
VALIDATION_SHARE = 0.1  # taken from training data without a validation split
NAMED = 5  # invalid rows that a message names
Part = tuple[np.ndarray, np.ndarray]


def from_arrays(
    name: str,
    parts: Sequence[Part],
    names: tuple[str, ...],
    pixels: tuple[float, float] | None,
) -> Dataset:
    """Make a data set of `(x, y)` to train, to validate and to test; missing ones are split off."""
    parts = list(parts)
    if len(parts) == 1:
        parts = split_off(*parts[0], TEST_SHARE)
    if len(parts) == 2:
        parts = [*split_off(*parts[0], VALIDATION_SHARE), parts[1]]
    train, validation, test = (
        tf.data.Dataset.from_tensor_slices((x, y.astype(np.int64))) for x, y in parts
    )
    return Dataset(name, train, validation, test, names, tuple(parts[0][0].shape[1:]), pixels)


def split_off(x: np.ndarray, y: np.ndarray, share: float) -> list[Part]:
    """The other rows, and a `share` of the rows; stratified by class if there are enough."""
    from sklearn.model_selection import train_test_split

    classes, counts = np.unique(y, return_counts=True)
    enough = counts.min() > 1 and share * len(y) >= len(classes)
    x, x_part, y, y_part = train_test_split(
        x, y, test_size=share, stratify=y if enough else None, random_state=0
    )
    return [(x, y), (x_part, y_part)]


def scale(x: np.ndarray) -> np.ndarray:
    """8-bit values as [-1, 1], others as they are; float32."""
    return x.astype(np.float32) / 127.5 - 1.0 if x.dtype == np.uint8 else x.astype(np.float32)


def report_skipped(what: str, errors: dict[str, str], total: int, strict: bool) -> None:
    """Warn about invalid rows by name, or raise `ValueError` if `strict` or if all are invalid."""
    if not errors:
        return
    named = [f"{name} ({error})" for name, error in list(errors.items())[:NAMED]]
    others = f" and {len(errors) - NAMED} more" if len(errors) > NAMED else ""
    text = f"{len(errors)} of {total} {what}: {'; '.join(named)}{others}."
    if strict or len(errors) == total:
        raise ValueError(f"{text} Correct or remove them.")
    warnings.warn(f"{text} They are skipped; --strict (strict=True) refuses them.", stacklevel=4)
