"""CSV and Parquet tables: to train on, and as batches of numbers or image files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jem_tf.data import arrays, csv_files
from jem_tf.data.csv_files import CheckedBatch
from jem_tf.data.dataset import Dataset

SUFFIXES = (".csv", ".parquet")
ENCODE = "Categories must be encoded as numbers: see 'Tables' in 'Train on your data'."


@dataclass(frozen=True)
class TableBatch:
    """Rows of a table: `x` holds numbers `[n, columns]`, or the bytes of image files.

    ```python
    next(read_table("irises.csv", label="species")).labels
    ```

    Rows with an entry in `errors`, by index, have no valid `x`.
    """

    x: np.ndarray | list[bytes]
    labels: list[Any] | None
    ids: list[Any] | None
    errors: dict[int, str]


def read_table(
    path: str | Path,
    label: str | None = None,
    row_id: str | None = None,
    columns: Sequence[str] | None = None,
    start: int = 0,
    batch_size: int = 1024,
) -> Iterator[TableBatch]:
    """Read the rows of a `.csv` or `.parquet` file from row `start` on.

    ```python
    for batch in read_table("irises.csv", label="species"):
        batch.x, batch.labels
    ```

    Args:
        path: the file.
        label: the column of labels.
        row_id: the column that identifies a row.
        columns: the inputs, in the order of the model's; by default all other columns. If they
            are one column of bytes, its values are image files.
        start: the first row.
        batch_size: rows in a batch, at most.
    """
    path = Path(path)
    for batch, invalid in _record_batches(path, start, batch_size):
        names = batch.schema.names
        inputs = columns or [name for name in names if name not in (label, row_id)]
        wanted = [*inputs, *filter(None, (label, row_id))]
        if missing := [name for name in wanted if name not in names]:
            raise ValueError(
                f"{str(path)!r} has no column {', '.join(map(repr, missing))}. Its columns: "
                f"{', '.join(names)}"
            )
        x, errors = _inputs(batch, list(inputs))
        labels, ids = (None if n is None else batch[n].to_pylist() for n in (label, row_id))
        yield TableBatch(x, labels, ids, errors | invalid)


def load_table(
    path: Path, label: str | None, columns: Sequence[str] | None, strict: bool
) -> Dataset:
    """Load a table of numbers with a column of labels, `label` or "label", into memory."""
    x: list[np.ndarray] = []
    labels: list[Any] = []
    errors: dict[str, str] = {}
    total = 0
    for batch in read_table(path, label or "label", columns=columns):
        if isinstance(batch.x, list):
            raise ValueError(f"{str(path)!r} holds images: write them to a folder for each class.")
        found = dict.fromkeys(
            (i for i, v in enumerate(batch.labels or ()) if v is None), "no label"
        )
        found |= batch.errors
        errors |= {f"row {total + i}": found[i] for i in sorted(found)}
        valid = [i for i in range(len(batch.x)) if i not in found]
        x.append(batch.x[valid])
        labels += [(batch.labels or [])[i] for i in valid]
        total += len(batch.x)
    try:
        arrays.report_skipped(f"rows of {str(path)!r} are not valid", errors, total, strict)
    except ValueError as error:
        raise ValueError(f"{error} {ENCODE}") from None
    if not labels:
        raise ValueError(f"{str(path)!r} has no rows.")
    names, y = _classes(labels)
    return arrays.from_arrays(path.stem, [(np.concatenate(x), y)], names, None)


def _classes(labels: Sequence[Any]) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names of the classes, numbers in their order, and the labels as indices."""
    texts = [label_text(value) for value in labels]
    names = sorted(set(texts))
    if all(name.lstrip("-").isdigit() for name in names):
        names.sort(key=int)
    index = {name: i for i, name in enumerate(names)}
    return tuple(names), np.array([index[text] for text in texts])


def label_text(value: Any) -> str:
    """Return a label as the name of its class: 1 and 1.0 are "1"."""
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


def column_names(path: str | Path) -> list[str]:
    """Return the names of the columns of a `.csv` or `.parquet` file."""
    first = next(_record_batches(Path(path), 0, 1), None)
    return [] if first is None else first[0].schema.names


def count_rows(path: str | Path) -> int:
    """Return the number of rows of a `.csv` or `.parquet` file."""
    if Path(path).suffix == ".parquet":
        return _parquet(Path(path)).metadata.num_rows
    return sum(len(batch) for batch, _ in _record_batches(Path(path), 0, 65536))


def is_images(
    path: str | Path,
    label: str | None = None,
    row_id: str | None = None,
    columns: Sequence[str] | None = None,
) -> bool:
    """Whether the inputs, as `read_table` takes them, are one column of bytes: image files."""
    if Path(path).suffix != ".parquet":
        return False
    kinds = {field.name: field.type for field in _parquet(Path(path)).schema_arrow}
    inputs = columns or [name for name in kinds if name not in (label, row_id)]
    return len(inputs) == 1 and _is_bytes(kinds.get(inputs[0]))


def _parquet(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"Cannot read {str(path)!r}: {error}") from error


def _record_batches(path: Path, start: int, batch_size: int) -> Iterator[CheckedBatch]:
    """Record batches from row `start` on; whole row groups before it are not read."""
    import pyarrow as pa

    if path.suffix == ".parquet":
        file = _parquet(path)
        groups = list(range(file.num_row_groups))
        while groups and start >= (size := file.metadata.row_group(groups[0]).num_rows):
            groups, start = groups[1:], start - size
        read = file.iter_batches(batch_size, row_groups=groups)
        batches: Iterator[CheckedBatch] = ((batch, {}) for batch in read)
    else:
        batches = csv_files.read_batches(path, batch_size)
    try:
        for batch, invalid in batches:
            if start < len(batch):
                yield csv_files.cut(batch, invalid, start, batch_size)
            start = max(0, start - len(batch))
    except pa.ArrowInvalid as error:
        raise ValueError(f"Cannot read {str(path)!r}: {error}") from error


def _inputs(batch: Any, names: list[str]) -> tuple[np.ndarray | list[bytes], dict[int, str]]:
    """Return the inputs of a batch, and what is wrong with rows by index."""
    import pyarrow as pa

    kinds = [batch.schema.field(name).type for name in names]
    if len(names) == 1 and _is_bytes(kinds[0]):
        return [value or b"" for value in batch[names[0]].to_pylist()], {}
    errors: dict[int, str] = {}
    values = np.empty((len(batch), len(names)), np.float32)
    for place, (name, kind) in enumerate(zip(names, kinds)):
        column = batch[name]
        if pa.types.is_dictionary(kind):
            column, kind = column.dictionary_decode(), kind.value_type
        if _is_text(kind):
            column = column.cast(pa.string())
        elif not (pa.types.is_boolean(kind) or _is_number(kind)):
            raise ValueError(f"Column {name!r} holds {kind}, which is not a number. {ENCODE}")
        values[:, place] = _numbers(column)
        for row in np.flatnonzero(~np.isfinite(values[:, place])):
            cell = batch[name][int(row)].as_py()
            found = "missing" if cell is None else f"{cell!r}, not a finite number"
            errors.setdefault(int(row), f"column {name!r} is {found}")
    return values, errors


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa

    return kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _numbers(column: Any) -> np.ndarray:
    """Return a column as float32, NaN where it is missing or not a number."""
    import pyarrow as pa

    try:
        return column.cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return np.array([_number(value) for value in column.to_pylist()], np.float32)


def _number(text: str | None) -> float:
    try:
        return float(text) if text is not None else np.nan
    except ValueError:
        return np.nan
