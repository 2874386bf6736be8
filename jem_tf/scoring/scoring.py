"""`score`: a model, rows and a file of scores.

Not here: how a batch is scored (`batches.py`), how parts are kept (`parts.py`), several machines
(`ray_engine.py`).
"""

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Job:
    """What is scored by which model; workers on other machines open both from it."""

    model: Any
    data: Any
    split: str
    label: str | None
    row_id: str | None
    columns: Sequence[str] | None
    data_dir: str | None
    pixel_range: Sequence[float] | None
    batch_size: int

    def open_rows(self) -> Any:
        from jem_tf.data.rows import open_rows

        return open_rows(
            self.data,
            split=self.split,
            label=self.label,
            row_id=self.row_id,
            columns=self.columns,
            data_dir=self.data_dir,
        )

    def open_scorer(self) -> Any:
        from jem_tf.scoring.scorers import open_scorer

        return open_scorer(self.model, self.data_dir, self.pixel_range)


@dataclass(frozen=True)
class Summary:
    """What `score` did.

    ```python
    jem_tf.score("runs/digits", "photos/", "scores.parquet").errors
    ```
    """

    out: Path
    rows: int
    errors: int
    out_of_distribution: int | None  # None: the model has no verdict
    scored: int  # rows of this call; the others were scored before
    seconds: float
    report: Path | None = None


def score(
    model: Any,
    data: Any,
    out: str | Path,
    *,
    split: str = "test",
    label: str | None = None,
    row_id: str | None = None,
    columns: Sequence[str] | None = None,
    data_dir: str | None = None,
    pixel_range: Sequence[float] | None = None,
    batch_size: int = 256,
    part_rows: int = 10_240,
    engine: str = "local",
    workers: int = 2,
    address: str | None = None,
    overwrite: bool = False,
    report: bool = False,
) -> Summary:
    """Score every row of `data` with `model`, and write a table with a row for each.

    ```python
    jem_tf.score("saved_models/digits", "photos/", "scores.parquet")
    jem_tf.score(model, x, "scores.csv")
    ```

    The columns are `id` (a path or row number), `class`, `probability`, `energy`, `ood_score`,
    `p_value`, `is_ood`, `label` if known, and `error`. An input that cannot be read is a row with
    an error. Memory does not grow with the data. A call that was stopped continues where it was,
    unless `model` or `data` is an object in memory.

    Args:
        model: a run directory, a `.keras` file, an export, an endpoint such as
            `grpc://localhost:8500/digits`, or a Keras model.
        data: see `jem_tf.data.rows.open_rows`.
        out: a `.parquet`, `.csv` or `.jsonl` file.
        split: of data sets that have several.
        label: the column of labels of a table; by default that of the training of a run.
        row_id: the column of a table that identifies a row.
        columns: the inputs of a table; by default those named in the training of a run, else all
            other columns.
        data_dir: the directory of TensorFlow Datasets.
        pixel_range: the values of black and white pixels that the model expects, if it does not
            say; by default those of its export or run, (0, 255) for a file that begins with
            Rescaling, and (-1, 1) for other files.
        batch_size: rows in a call of the model.
        part_rows: rows that are lost at most if the process dies, and a task of a Ray worker.
        engine: "local", or "ray" for several processes or machines (`pip install jem_tf[ray]`).
        workers: of Ray; each loads the model once.
        address: of a Ray cluster; by default Ray is started on this machine.
        overwrite: replace `out`, and what other calls have left of it.
        report: write a page about the scores beside them.
    """
    from jem_tf.checks import check_known, check_positive_integer
    from jem_tf.scoring.findings import Findings
    from jem_tf.scoring.parts import Parts

    check_known("engine", engine, ENGINES)
    for name, value in (("batch_size", batch_size), ("part_rows", part_rows), ("workers", workers)):
        check_positive_integer(name, value)
    if report:
        from jem_tf.scoring.report import check_installed, write_report

        check_installed()
    label, columns = _complete_columns(model, data, label, columns)
    job = Job(model, data, split, label, row_id, columns, data_dir, pixel_range, batch_size)
    rows = job.open_rows()
    parts = Parts(Path(out), len(rows), part_rows)
    parts.begin(_describe(job, rows.files), overwrite)
    left = parts.rows_left()
    begin = time.monotonic()
    try:
        if engine == "ray":
            from jem_tf.scoring.ray_engine import score_parts

            rate = score_parts(job, parts, workers, address)
        else:
            rate = _score_here(job, rows, parts)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Stopped. The same command continues where it was.") from None
    seconds = time.monotonic() - begin
    findings = Findings()
    parts.finish(findings.add)
    page = write_report(parts.out, findings, rows, rate) if report else None
    flagged = findings.flagged if findings.judged else None
    counts = findings.rows, findings.errors, flagged
    return Summary(parts.out, *counts, left, seconds, page)


def _complete_columns(
    model: Any, data: Any, label: str | None, columns: Sequence[str] | None
) -> tuple[str | None, Sequence[str] | None]:
    """The columns of a table by their names in the training of a run, where none are given."""
    from jem_tf.data import tables
    from jem_tf.training import RunSettings, run_directory

    path = Path(data) if isinstance(data, (str, Path)) else Path()
    known = isinstance(model, (str, Path)) and run_directory.is_run(model)
    if not known or path.suffix not in tables.SUFFIXES or not path.is_file():
        return label, columns
    source = RunSettings.read(model).data
    assert source is not None
    trained_label = source.label or "label"
    if label is None and trained_label in tables.column_names(path):
        label = trained_label
    return label, columns or source.columns


def _score_here(job: Job, rows: Any, parts: Any) -> float | None:
    """Score all missing parts in this process; return the model's false alarm rate, if known."""
    from jem_tf.scoring.batches import score_batches

    missing = parts.missing()
    if not missing:
        return None
    scorer = job.open_scorer()
    with progress(parts) as bar:
        for first, last in _spans(missing):
            start, stop = parts.bounds(first)[0], parts.bounds(last)[1]
            tables = score_batches(scorer, rows, start, stop, job.batch_size)
            parts.write_all(first, tables, bar.update)
    return scorer.false_alarm_rate


def progress(parts: Any) -> Any:
    """Return a progress bar over all rows, with rate and time left."""
    from tqdm import tqdm

    done = parts.rows - parts.rows_left()
    return tqdm(
        total=parts.rows, initial=done, desc="scores", unit=" rows", unit_scale=True, disable=None
    )


def _spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of consecutive numbers."""
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return spans


def _describe(job: Job, files: Sequence[str] | None) -> dict[str, Any] | None:
    """What must be the same for parts to belong together; None for objects in memory."""
    if files is None or not isinstance(job.model, (str, Path)):
        return None
    named = {f.name: getattr(job, f.name) for f in fields(job) if f.name != "batch_size"}
    data = job.data if isinstance(job.data, (list, tuple)) else [job.data]
    model = {"model": str(job.model), "model_time": _modified(Path(job.model))}
    return named | model | {"data": [str(path) for path in data], "data_files": _digest(files)}


def _digest(files: Sequence[str]) -> str:
    """A digest of the names, sizes and modification times of `files`."""
    digest = hashlib.sha256()
    for file in files:
        status = os.stat(file) if os.path.exists(file) else None
        facts = (file, *(() if status is None else (status.st_size, status.st_mtime_ns)))
        digest.update(repr(facts).encode())
    return digest.hexdigest()


def _modified(path: Path) -> float | None:
    """When the model at `path` was written; None for endpoints."""
    names = ("model.keras", "saved_model.pb", "*/saved_model.pb")
    files = [file for name in names for file in path.glob(name)] or [path]
    return max((file.stat().st_mtime for file in files if file.exists()), default=None)
