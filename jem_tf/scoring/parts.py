"""The scores while they are written: parts of equal size, each written whole or not at all.

Not here: computing them (`batches.py`). A run that is stopped leaves its parts, and the same
command continues with the others; parts may be written by several processes.

    scores.parquet.parts/job.json       what is scored, by which model
    scores.parquet.parts/000000.parquet rows 0 to 9999
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from jem_tf.scoring.batches import schema

SUFFIXES = (".parquet", ".csv", ".jsonl")


class Parts:
    """The parts of the scores that will be at `out`.

    ```python
    parts = Parts(Path("scores.parquet"), rows=25_000, part_rows=10_000)
    parts.begin({"model": "runs/digits"}, overwrite=False)
    parts.missing()  # [0, 1, 2]
    ```
    """

    def __init__(self, out: Path, rows: int, part_rows: int):
        if out.suffix not in SUFFIXES:
            raise ValueError(
                f"The scores must be written to a file that ends in {', '.join(SUFFIXES)}. "
                f"Received: {str(out)!r}"
            )
        self.out, self.rows, self.part_rows = out, rows, part_rows
        self.directory = out.with_name(f"{out.name}.parts")

    def begin(self, job: dict[str, Any] | None, overwrite: bool) -> None:
        """Continue the same job, or start a new one; `ValueError` if another one is in the way.

        A job of None, with a model or data in memory, is never continued.
        """
        file = self.directory / "job.json"
        if job is not None:
            job = json.loads(json.dumps({**job, "rows": self.rows, "part_rows": self.part_rows}))
        before = None  # nothing that could be continued
        if file.is_file() and any(self.directory.glob("[0-9]*.parquet")):
            before = json.loads(file.read_text())
        if before is not None and before == job:
            return
        if self.out.exists() and not overwrite:
            raise ValueError(f"{str(self.out)!r} exists: --overwrite (overwrite=True) replaces it.")
        if before is not None and not overwrite:
            changed = [key for key in before if job is None or before[key] != job.get(key)]
            raise ValueError(
                f"{str(self.directory)!r} holds parts of another job; different: "
                f"{', '.join(changed)}. Replace them with --overwrite (overwrite=True)."
            )
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        _replace(file, lambda path: path.write_text(json.dumps(job, indent=2) + "\n"))

    def missing(self) -> list[int]:
        """The numbers of the parts that have not been written."""
        numbers = range(-(-self.rows // self.part_rows))
        return [number for number in numbers if not self.path(number).is_file()]

    def rows_left(self) -> int:
        """The number of rows that have not been scored."""
        return sum(end - begin for begin, end in map(self.bounds, self.missing()))

    def bounds(self, number: int) -> tuple[int, int]:
        """The first row of a part, and the one after its last."""
        return number * self.part_rows, min((number + 1) * self.part_rows, self.rows)

    def _size(self, number: int) -> int:
        begin, end = self.bounds(number)
        return end - begin

    def path(self, number: int) -> Path:
        """The file of a part."""
        return self.directory / f"{number:06d}.parquet"

    def write(self, number: int, table: Any) -> None:
        """Write a part."""
        import pyarrow.parquet as pq

        if len(table) != self._size(number):
            raise ValueError(
                f"The data changed while it was scored: {self._size(number)} rows were expected "
                f"from row {self.bounds(number)[0]} on. Received: {len(table)}"
            )
        _replace(self.path(number), lambda path: pq.write_table(table, path))

    def write_all(self, first: int, tables: Iterable[Any], scored: Callable[[int], Any]) -> None:
        """Cut `tables` into parts from number `first` on; report the rows of each table."""
        import pyarrow as pa

        number, waiting = first, schema().empty_table()
        for table in tables:
            waiting = pa.concat_tables([waiting, table])
            while len(waiting) >= (size := self._size(number)) > 0:
                self.write(number, waiting.slice(0, size))
                number, waiting = number + 1, waiting.slice(size)
            scored(len(table))
        if len(waiting):
            self.write(number, waiting)

    def finish(self, observe: Callable[[Any], None]) -> None:
        """Join the parts into the file of the scores, and remove them.

        `observe` is called with each table.
        """
        writer = {".parquet": _write_parquet, ".csv": _write_csv, ".jsonl": _write_json_lines}
        _replace(self.out, lambda path: writer[self.out.suffix](path, self._tables(observe)))
        shutil.rmtree(self.directory)

    def _tables(self, observe: Callable[[Any], None]) -> Iterator[Any]:
        import pyarrow.parquet as pq

        for number in range(-(-self.rows // self.part_rows)):
            table = pq.read_table(self.path(number))
            observe(table)
            yield table


def _replace(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file aside, then rename it: nobody sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_parquet(path: Path, tables: Iterator[Any]) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema()) as writer:
        for table in tables:
            writer.write_table(table)


def _write_csv(path: Path, tables: Iterator[Any]) -> None:
    from pyarrow import csv

    with csv.CSVWriter(path, schema()) as writer:
        for table in tables:
            writer.write_table(table)


def _write_json_lines(path: Path, tables: Iterator[Any]) -> None:
    with path.open("w") as file:
        for table in tables:
            for row in table.to_pylist():
                finite = {k: None if v != v else v for k, v in row.items()}  # JSON has no NaN
                file.write(json.dumps(finite) + "\n")
