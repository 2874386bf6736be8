"""What users pass to `fit` and `adapt`: read before training, checked, and summarised.

Not here: loading data sets (`sources.py`).
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf.data.labels import check_labels, check_weights

NUM_ROWS = 10_000  # rows kept to fit chain starts, about; the range is that of all rows
MAX_BATCHES = 64  # batches of a stream that `fit` reads by itself
MAX_BYTES = 2**28  # of the rows kept, and of the batches read
SEVERAL_INPUTS = (
    "JEM takes one input tensor. Concatenate the inputs, and split them in the first layer of the "
    "model. Received: {}"
)


@dataclass(frozen=True)
class Summary:
    """What `summarise` learned about a data set: some rows, the range of all, the largest batch."""

    x: np.ndarray
    y: np.ndarray | None
    bounds: tuple[np.ndarray, np.ndarray]
    batch: int
    unscaled: str | None = None  # a warning about the range, if there is reason for one


def is_stream(data: Any) -> bool:
    """Whether `data` yields batches itself, instead of being an array of rows."""
    if isinstance(data, dict):
        raise ValueError(SEVERAL_INPUTS.format(f"a dict of {', '.join(map(str, data))}"))
    return not hasattr(data, "shape") and not isinstance(data, (list, tuple, np.ndarray))


def batches_of(x: Any, y: Any, batch_size: int) -> Iterator[tuple[Any, Any]]:
    """`(x, y)` batches of arrays, a `tf.data.Dataset`, a `PyDataset` or any iterable."""
    if isinstance(x, tf.data.Dataset) and int(x.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("The data set is infinite: pass `data.take(batches)`.")
    check_batched(x)
    if not is_stream(x):
        for begin in range(0, len(x), batch_size):
            rows = slice(begin, begin + batch_size)
            yield x[rows], None if y is None else y[rows]
        return
    items = (x[i] for i in range(len(x))) if isinstance(x, keras.utils.PyDataset) else iter(x)
    for item in items:
        yield unpack(item)[:2]


def check_batched(x: Any) -> None:
    """Raise `ValueError` for a `tf.data.Dataset` of single rows."""
    if not isinstance(x, tf.data.Dataset):
        return
    rows, labels, _ = unpack(x.element_spec)
    if not all(isinstance(spec, tf.TensorSpec) for spec in (rows, labels) if spec is not None):
        return
    shapes = [spec.shape for spec in (rows, labels) if spec is not None]
    # A batch of numbers has two axes, and as many labels as rows.
    single = any(shape.rank == 0 for shape in shapes) or (
        rows.shape.rank == 1 and rows.dtype.is_floating
    )
    if single or not shapes[0][:1].is_compatible_with(shapes[-1][:1]):
        raise ValueError(
            "The data set yields single rows: `.batch()` it, such as data.batch(32). "
            f"Received: elements {x.element_spec}"
        )


def as_pair(data: Any) -> tuple[Any, Any]:
    """`data` as x and y: a tuple or list of two arrays; a stream of batches has no y beside it."""
    is_pair = isinstance(data, tuple) or (
        isinstance(data, list) and len(data) == 2 and all(hasattr(part, "shape") for part in data)
    )
    if not is_pair:
        return data, None
    if len(data) != 2:
        raise ValueError(f"Labelled data must be (x, y) or batches. Received: {len(data)} parts")
    return data[0], data[1]


def unpack(item: Any) -> tuple[Any, Any, Any]:
    """`item` as x, y and sample weights; a tensor alone is x."""
    parts = tuple(item) if isinstance(item, (tuple, list)) else (item,)
    return (*parts, None, None)[:3]


def summarise(batches: Iterable[tuple[Any, Any]], classes: int) -> Summary:
    """Check every batch, learn the range, and keep rows spread evenly over the data."""
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    low = high = None
    total = count = batch = 0
    stride = 1  # one row in `stride` is kept; doubled whenever there are too many
    for x, y in batches:
        x = np.asarray(x)
        check_rows(x, first_row=total)
        if not len(x):
            continue
        labels = np.full(len(x), -1) if y is None else check_labels(np.asarray(y), classes, total)
        axes = tuple(range(x.ndim - 1))
        below, above = x.min(axes), x.max(axes)
        low = below if low is None else np.minimum(low, below)
        high = above if high is None else np.maximum(high, above)
        chosen = slice(-total % stride, None, stride)
        kept.append((np.asarray(x[chosen], np.float32), labels[chosen]))
        count += len(kept[-1][1])
        total, batch, dtype = total + len(x), max(batch, len(x)), x.dtype
        if count > 2 * min(NUM_ROWS, max(1, MAX_BYTES // (4 * x[0].size))):
            rows, labels = (np.concatenate(part)[::2] for part in zip(*kept))
            kept, count, stride = [(rows, labels)], len(labels), 2 * stride
    if low is None or high is None:
        raise ValueError("The data set is empty: there is no row to learn from.")
    unscaled = _unscaled(dtype, low, high, kept[0][0])
    rows, labels = (np.concatenate(part) for part in zip(*kept))
    bounds = low.astype(np.float32), high.astype(np.float32)
    return Summary(rows, labels if (labels >= 0).any() else None, bounds, batch, unscaled)


def check_rows(x: np.ndarray, first_row: int = 0) -> None:
    """Raise `ValueError` naming the first row of `x` that has a non-finite value."""
    if x.dtype.kind not in "fiub" and x.dtype != tf.bfloat16.as_numpy_dtype:
        raise ValueError(f"Inputs must be numbers. Received: dtype {x.dtype}, shape {x.shape}")
    if x.ndim < 2:
        raise ValueError(
            "Inputs must have a batch axis and at least one more, such as [batch, features]. "
            f"Received: shape {x.shape}"
        )
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        bad = int(np.flatnonzero(~np.isfinite(x).all(axis=tuple(range(1, x.ndim))))[0])
        value = x[bad][~np.isfinite(x[bad])].flat[0]
        raise ValueError(f"Inputs must be finite. Received: {value} in row {first_row + bad}")


def check_shape(shape: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    """Raise `ValueError` unless rows of `shape` fit the inputs of the backbone."""
    fits = len(shape) == len(expected) and all(b is None or a == b for a, b in zip(shape, expected))
    if not fits:
        raise ValueError(
            f"Inputs must have the shape [batch, {', '.join(map(str, expected))}] of the "
            f"backbone's. Received: rows of shape {tuple(shape)}"
        )


def checked_rows(x: Any, shape: tuple[Any, ...] | None) -> Any:
    """`x` with rows of `shape`; of batches `(x, y)` only x, checked as they are read. Tensors of a
    graph are not checked."""
    if not tf.executing_eagerly():
        return x
    if is_stream(x):
        return (checked_rows(rows, shape) for rows, _ in batches_of(x, None, 1))
    x = x if hasattr(x, "shape") else np.asarray(x)
    check_shape(x.shape[1:], shape or x.shape[1:])
    return x


def look_ahead(x: Any, batches: int) -> tuple[Iterator[tuple[Any, Any]], Any]:
    """Return the first `batches` of the stream `x`, fewer if they are large, and `x` itself.

    An iterator is returned as another one that yields the same items from the beginning.
    """
    items: list[Any] = []
    stream = x
    if isinstance(x, keras.utils.PyDataset):
        stream = (x[i] for i in range(len(x)))
    size = 0
    for item in itertools.islice(stream, batches):
        items.append(item)
        size += np.asarray(unpack(item)[0]).nbytes
        if size > MAX_BYTES:
            break
    weights = [unpack(item)[2] for item in items]
    if 0 < len(items) < batches and size <= MAX_BYTES and all(w is not None for w in weights):
        check_weights(np.concatenate([np.asarray(w) for w in weights]))  # those of the whole stream
    # Only an iterator cannot start again by itself.
    restarted = (item for item in itertools.chain(items, x)) if isinstance(x, Iterator) else x
    return (unpack(item)[:2] for item in items), restarted


def batches_per_epoch(
    x: Any, batch_size: int, steps_per_epoch: int | None, validation_split: float
) -> int | None:
    """How many batches `fit` will draw in an epoch; None if that is unknown."""
    if steps_per_epoch is not None:
        return steps_per_epoch
    if not is_stream(x):
        return math.ceil(len(x) * (1.0 - validation_split) / batch_size)
    if isinstance(x, tf.data.Dataset):
        cardinality = int(x.cardinality())
        return cardinality if cardinality > 0 else None
    return len(x) if hasattr(x, "__len__") else None


def _unscaled(dtype: Any, low: np.ndarray, high: np.ndarray, rows: np.ndarray) -> str | None:
    """What is wrong with inputs that look like 8-bit images; None if they do not."""
    bottom, top = float(low.min()), float(high.max())
    eight_bit = rows.ndim > 2 and bottom >= 0 and 128 <= top <= 255 and (rows % 1 == 0).all()
    if dtype != np.uint8 and not eight_bit:
        return None
    return (
        f"The inputs look like unscaled 8-bit images: range [{bottom:g}, {top:g}]. Chains adapt to "
        "any range, but networks train best on inputs scaled to [-1, 1]: use x / 127.5 - 1."
    )
