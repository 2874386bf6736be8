"""Batches of rows to batches of scores: decode, check, score, and an error for what fails.

Not here: where rows come from (`data/rows.py`), where scores go (`parts.py`).
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.client import ServingError
from jem_tf.data.images import ImageDecoder, to_png_or_jpeg
from jem_tf.data.inputs import check_shape
from jem_tf.data.rows import RowBatch, Rows
from jem_tf.data.tables import label_text
from jem_tf.scoring.scorers import Outputs, PixelRange, Scorer

AHEAD = 4  # batches that are read and decoded while the model is busy
THREADS = 2
TOO_LARGE = re.compile(r"larger than|needs \d+ bytes|more than \d+ fields")
NO_PIXEL_RANGE = (
    "The model does not say which values black and white pixels have: give them with --pixel-range "
    "(pixel_range), such as -1 1."
)


def score_batches(scorer: Scorer, rows: Rows, start: int, stop: int, size: int) -> Iterator[Any]:
    """Yield Arrow tables with the scores of the rows from `start` to `stop`, in order."""
    rows = rows.resized(scorer.shape)
    prepare = _preparation(scorer, rows)
    batches = _limited(rows.batches(start, size), stop - start)
    with ThreadPoolExecutor(THREADS) as threads:
        waiting: deque[Any] = deque()
        for batch in batches:
            batch.labels = _label_names(batch.labels, scorer.class_names, rows.labels_are_names)
            waiting.append((batch, threads.submit(prepare, batch)))
            if len(waiting) > AHEAD:
                yield _score(scorer, *waiting.popleft())
        while waiting:
            yield _score(scorer, *waiting.popleft())


def schema() -> Any:
    """The columns of the scores; all but `id` are null in rows with an `error`."""
    import pyarrow as pa

    names = ("probability", "energy", "ood_score", "p_value")
    return pa.schema(
        [("id", pa.string()), ("class", pa.string())]
        + [(name, pa.float32()) for name in names]
        + [("is_ood", pa.bool_()), ("label", pa.string()), ("error", pa.string())]
    )


def _limited(batches: Iterator[RowBatch], count: int) -> Iterator[RowBatch]:
    """Yield the first `count` rows."""
    for batch in batches:
        if len(batch.ids) >= count:
            labels = None if batch.labels is None else batch.labels[:count]
            errors = {i: e for i, e in batch.errors.items() if i < count}
            yield RowBatch(batch.ids[:count], batch.x[:count], labels, errors)
            return
        count -= len(batch.ids)
        yield batch


def _preparation(scorer: Scorer, rows: Rows) -> Callable[[RowBatch], Any]:
    """Return what turns a batch into valid inputs; it adds to the errors of the batch."""
    if scorer.dtype == tf.string:
        return lambda batch: _prepare_text(batch, scorer)
    if rows.is_images and scorer.score_files is not None:
        return lambda batch: _prepare_files(batch, to_png_or_jpeg)
    if rows.is_images:
        if scorer.pixel_range is None or scorer.shape is None:
            raise ValueError(NO_PIXEL_RANGE)
        if None in scorer.shape:
            raise ValueError(
                "The model takes images of any size: score arrays, or give its network an input "
                f"of one size. Received: inputs of shape {scorer.shape}"
            )
        decoder = ImageDecoder(scorer.shape, scorer.pixel_range)
        return lambda batch: _prepare_files(batch, decoder)
    return lambda batch: _prepare_array(batch, scorer, rows.pixel_range)


def _prepare_files(batch: RowBatch, read: Callable[[list[bytes]], tuple[Any, Any]]) -> Any:
    """Return what `read` makes of the files, without those that have an error."""
    places = _valid_places(batch)
    inputs, errors = read([batch.x[i] for i in places])
    batch.errors.update({places[index]: error for index, error in errors.items()})
    return inputs


def _prepare_text(batch: RowBatch, scorer: Scorer) -> np.ndarray:
    x = np.asarray(batch.x)
    if isinstance(batch.x, list) or x.dtype.kind not in "USO":
        raise ValueError(
            "The model takes text: score an array of strings, or an .npz file with one. Received: "
            f"{'image files' if isinstance(batch.x, list) else f'rows of {x.dtype}'}"
        )
    if scorer.shape is not None:
        check_shape(x.shape[1:], scorer.shape)
    return x[_valid_places(batch)]


def _prepare_array(batch: RowBatch, scorer: Scorer, pixel_range: PixelRange) -> np.ndarray:
    x = np.asarray(batch.x)
    if x.dtype.kind not in "fiub":
        raise ValueError(
            f"The model takes numbers of type {scorer.dtype.name}. Received: rows of {x.dtype}"
        )
    if x.dtype == np.uint8 and x.ndim == 4:
        pixel_range = (0.0, 255.0)
    if pixel_range is not None and pixel_range != scorer.pixel_range:
        if scorer.pixel_range is None:
            raise ValueError(NO_PIXEL_RANGE)
        black, white = pixel_range
        low, high = scorer.pixel_range
        scale = np.float32((high - low) / (white - black))
        x = low + (x.astype(np.float32, copy=False) - black) * scale
    if scorer.shape is not None:
        sized = None not in scorer.shape
        if x.ndim == 2 and sized and x.shape[1] == np.prod(scorer.shape):
            x = x.reshape(-1, *scorer.shape)
        check_shape(x.shape[1:], scorer.shape)
    finite = np.isfinite(x).all(axis=tuple(range(1, x.ndim)))
    for index in np.flatnonzero(~finite):
        batch.errors.setdefault(int(index), "a value is not finite")
    return x[_valid_places(batch)].astype(scorer.dtype.as_numpy_dtype, copy=False)


def _valid_places(batch: RowBatch) -> list[int]:
    return [index for index in range(len(batch.ids)) if index not in batch.errors]


def _score(scorer: Scorer, batch: RowBatch, prepared: Any) -> Any:
    """Return the scores of one batch as an Arrow table."""
    import pyarrow as pa

    inputs = prepared.result()
    places = np.array(_valid_places(batch), int)
    on_wire = isinstance(inputs, list)
    call = scorer.score_files if on_wire else scorer.score
    assert call is not None
    parts = list(_score_parts(call, inputs, places, batch.errors)) if len(places) else []

    def spread(read: Callable[[Outputs], Any], dtype: Any, is_verdict: bool) -> Any:
        kind = object if dtype == pa.string() else dtype.to_pandas_dtype()
        column, known = np.zeros(len(batch.ids), kind), np.zeros(len(batch.ids), bool)
        for rows, outputs in parts:
            column[rows] = read(outputs)
            known[rows] = ~np.isnan(outputs["percentile"]) if is_verdict else True
        return pa.array(column, dtype, mask=~known)

    readers: dict[str, Callable[[Outputs], Any]] = {
        "class": lambda out: _class_names(out, scorer.class_names),
        "probability": lambda out: out["probabilities"].max(1),
        "energy": lambda out: out["energy"],
        "ood_score": lambda out: out["ood_score"],
        "p_value": lambda out: out["percentile"] / 100.0,
        "is_ood": lambda out: out["is_ood"],
    }
    columns = {"id": pa.array(batch.ids, pa.string())}
    for name, read in readers.items():
        is_verdict = name in ("p_value", "is_ood")  # null if the model has no detector
        columns[name] = spread(read, schema().field(name).type, is_verdict)
    columns["label"] = pa.array(batch.labels or [None] * len(batch.ids), pa.string())
    columns["error"] = pa.array([batch.errors.get(i) for i in range(len(batch.ids))], pa.string())
    return pa.table(columns, schema=schema())


def _score_parts(
    call: Callable[[Any], Outputs], inputs: Any, places: np.ndarray, errors: dict[int, str]
) -> Iterator[tuple[np.ndarray, Outputs]]:
    """Score `inputs` together, or in halves if a server refuses one of them or their size."""
    try:
        yield places, call(inputs)
    except ServingError as error:
        if error.code not in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"):
            raise
        if len(places) == 1:
            if error.code == "RESOURCE_EXHAUSTED" and not TOO_LARGE.search(error.message):
                raise  # the server has too much to do
            errors[int(places[0])] = str(error)
            return
        middle = len(places) // 2
        yield from _score_parts(call, inputs[:middle], places[:middle], errors)
        yield from _score_parts(call, inputs[middle:], places[middle:], errors)


def _class_names(outputs: Outputs, names: Sequence[str] | None) -> list[str]:
    if names is None:
        return [n.decode() if isinstance(n, bytes) else str(n) for n in outputs["class_name"]]
    return [names[i] for i in outputs["class_id"]]


def _label_names(
    labels: Sequence[Any] | None, names: Sequence[str] | None, are_names: bool
) -> list[str | None] | None:
    """Labels as class names, None where unknown; None if the classes are not known.

    Numbers are indices, unless they `are_names` and the classes have numbers for names.
    """
    if labels is None or names is None:
        return None
    known = set(names)
    as_index = not (are_names and any(name.lstrip("-").isdigit() for name in names))

    def name(label: Any) -> str | None:
        text, is_name = label_text(label), are_names or isinstance(label, str)
        if is_name and text in known:
            return text
        is_index = as_index and (are_names or not is_name) and text.isdigit()
        return names[int(text)] if is_index and int(text) < len(names) else None

    return [name(label) for label in labels]
