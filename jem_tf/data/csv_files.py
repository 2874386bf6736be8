"""CSV files as record batches of text; a line that is not a row is an empty row with an error.

Not here: what columns mean (`tables.py`).
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CheckedBatch = tuple[Any, dict[int, str]]  # a record batch, and what is wrong with rows by index


def cut(batch: Any, invalid: dict[int, str], start: int, count: int) -> CheckedBatch:
    """Return `count` rows from `start` on, with what is wrong with them."""
    kept = {row - start: invalid[row] for row in invalid if start <= row < start + count}
    return batch.slice(start, count), kept


def read_batches(path: Path, batch_size: int) -> Iterator[CheckedBatch]:
    """All columns are text: a type that fits the first rows might not fit the others."""
    import pyarrow as pa
    from pyarrow import csv

    invalid: dict[int, str] = {}  # by row

    def skip(row: Any) -> str:
        counts = f"{row.actual_columns} cells, and the header {row.expected_columns}"
        invalid[row.number - 2] = f"the line has {counts}"  # rows are counted from 1, the header
        return "skip"

    def open_csv(handler: Any, types: dict[str, Any]) -> Any:
        return csv.open_csv(
            path,
            csv.ReadOptions(use_threads=False),  # rows are counted in order
            csv.ParseOptions(newlines_in_values=True, invalid_row_handler=handler),
            csv.ConvertOptions(column_types=types, strings_can_be_null=True),
        )

    try:
        names = open_csv(lambda row: "skip", {}).schema.names
        reader = open_csv(skip, dict.fromkeys(names, pa.binary()))
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"Cannot read {str(path)!r}: {error}") from error
    row = 0
    end = pa.RecordBatch.from_pylist([], reader.schema)  # invalid rows may follow the last block
    for block in itertools.chain(reader, [end]):
        block, errors = _insert_invalid(block, invalid, row)
        row += len(block)
        for begin in range(0, len(block), batch_size):
            part, kept = cut(block, errors, begin, batch_size)
            yield pa.record_batch([_text(column) for column in part.columns], names), kept


def _insert_invalid(block: Any, invalid: dict[int, str], row: int) -> CheckedBatch:
    """Insert the `invalid` rows between, before and after the rows of `block`, as empty rows.

    The first of them all is `row`.
    """
    import pyarrow as pa

    if not invalid or min(invalid) > row + len(block):
        return block, {}
    places: list[int | None] = []
    errors: dict[int, str] = {}
    for index in (*range(len(block)), None):
        while (error := invalid.pop(row + len(places), None)) is not None:
            errors[len(places)] = error
            places.append(None)
        if index is not None:
            places.append(index)
    return block.take(pa.array(places, pa.int64())), errors


def _text(column: Any) -> Any:
    """Return a column of bytes as text; what is not UTF-8 is replaced by U+FFFD."""
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        cells = column.to_pylist()
        return pa.array(
            [c if c is None else c.decode(errors="replace") for c in cells], pa.string()
        )
