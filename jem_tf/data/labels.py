"""Labels and sample weights that users pass: checked on arrays before training, and in the graph.

Not here: inputs (`inputs.py`).
"""

from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf._tf.errors import check

_COLUMNS = "One-hot labels must have {} columns, one for each class. Received: labels of shape {}"
_ONE_CLASS = (
    "Each row of labels must sum to 1, or be all 0 if it is unlabelled, as classes exclude each "
    "other. For several labels in a row, train a model for each label."
)
_INTEGERS = (
    "Labels must be integers [batch], with -1 for unlabelled rows, or one-hot [batch, classes]."
)
TOLERANCE = 1e-3  # of the sum of a row


def _bounds(classes: int) -> str:
    return f"Labels must be between 0 and {classes - 1}, or -1 for unlabelled rows."


def check_labels(y: np.ndarray, classes: int, first_row: int = 0) -> np.ndarray:
    """Return `y` as integers `[batch]`, -1 for unlabelled rows; raise `ValueError` if it is not."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim not in (1, 2) or y.dtype.kind not in "iufb":
        raise ValueError(f"{_INTEGERS} Received: dtype {y.dtype}, shape {y.shape}")
    if y.ndim == 2:
        if y.shape[1] != classes:
            raise ValueError(_COLUMNS.format(classes, y.shape))
        total = np.maximum(y, 0).sum(1)
        valid = (np.abs(total - 1) <= TOLERANCE) | (total == 0)
        _raise_unless(valid, _ONE_CLASS, y, first_row)
        return np.where(total > 0, y.argmax(1), -1)
    _raise_unless(y == np.floor(y), _INTEGERS, y, first_row)
    _raise_unless((y >= -1) & (y < classes), _bounds(classes), y, first_row)
    return y.astype(np.int64)


def _raise_unless(valid: np.ndarray, message: str, y: np.ndarray, first_row: int) -> None:
    if not valid.all():
        bad = int(np.flatnonzero(~valid)[0])
        raise ValueError(f"{message} Received: {y[bad]} in row {first_row + bad}")


def as_integers(y: Any) -> Any:
    """Float and bool labels `[batch]` in an array as integers; anything else as it is."""
    is_vector = isinstance(y, np.ndarray) and (y.ndim == 1 or y.shape[1:] == (1,))
    return y.astype(np.int64) if is_vector and y.dtype.kind in "fb" else y


def targets_of(y: tf.Tensor | None, classes: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Labels without an extra axis, and as probabilities `[batch, classes]`, in the graph."""
    if y is None:
        raise ValueError("JEM needs labels `y`; mark unlabelled rows with -1. Received: y=None")
    if len(y.shape) == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if len(y.shape) not in (1, 2) or not (
        y.dtype.is_integer or y.dtype.is_floating or y.dtype.is_bool
    ):
        raise ValueError(f"{_INTEGERS} Received: dtype {y.dtype.name}, shape {y.shape}")
    if len(y.shape) == 2:
        if y.shape[1] != classes:
            raise ValueError(_COLUMNS.format(classes, y.shape))
        targets = tf.maximum(tf.cast(y, tf.float32), 0.0)
        total = tf.reduce_sum(targets, axis=1)
        valid, message = (tf.abs(total - 1.0) <= TOLERANCE) | (total == 0.0), _ONE_CLASS
    else:
        labels = tf.cast(y, tf.int32)
        whole = tf.cast(labels, y.dtype) == y if not y.dtype.is_bool else tf.ones_like(y)
        valid, message = whole & (labels >= -1) & (labels < classes), _bounds(classes)
        y, targets = labels, tf.one_hot(labels, classes)
    shown = tf.boolean_mask(y, ~valid)[:1]
    assertion = check(tf.reduce_all(valid), message, shown)
    with tf.control_dependencies([] if assertion is None else [assertion]):
        return y, tf.identity(targets)


def check_weights(weights: Any) -> None:
    """Raise `ValueError` unless sample weights are finite, not negative, and not all 0."""
    values = np.asarray(weights)
    if not np.isfinite(values).all() or (values < 0).any():
        bad = values[~(np.isfinite(values) & (values >= 0))].flat[0]
        raise ValueError(f"Sample weights must be finite and not negative. Received: {bad}")
    if values.size and not values.any():
        raise ValueError(
            f"All {values.size} sample weights are 0: there is nothing to learn. Leave them out, "
            "or give a positive weight to the rows that count."
        )


def class_indices(label: Any, n: int, classes: int, name: str = "label") -> np.ndarray:
    """`label`, one class or one for each of `n` rows, as `[n]`; raise `ValueError` if it is not."""
    labels = np.asarray(label)
    if labels.dtype.kind not in "iu" or labels.ndim > 1 or labels.shape not in ((), (n,)):
        raise ValueError(
            f"`{name}` must be one class or {n} of them, as integers. Received: {name}={label!r}"
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"`{name}` must be between 0 and {classes - 1}. Received: {name}={label!r}"
        )
    return np.broadcast_to(labels, (n,)).astype(np.int32)
