"""The whole evaluation: the order of the parts, `metrics.json` and the report.

Not here: the parts, the measures, the page. `metrics.json` is written after every result, so that
an interruption loses only what was being measured.
"""

import dataclasses
import json
import math
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jem_tf.checks import check_known, check_not_negative
from jem_tf.data import Dataset, ood_sets
from jem_tf.detection.calibration import MAX_CALIBRATION_ROWS
from jem_tf.evaluation import report
from jem_tf.evaluation.budget import BUDGETS
from jem_tf.evaluation.measures import features, robustness
from jem_tf.evaluation.parts import (
    Job,
    Results,
    classification,
    detection,
    generation,
    training_log,
)
from jem_tf.evaluation.parts import robustness as robustness_part
from jem_tf.evaluation.subjects import Subject
from jem_tf.model.detecting import MAX_REFERENCE
from jem_tf.version import VERSION

METRICS_FILE = "metrics.json"
MAX_ERROR_CHARACTERS = 500

PARTS: dict[str, Callable[[Job], Results]] = {
    "classification": classification.measure,
    "out-of-distribution detection": detection.measure,
    "robustness": robustness_part.measure,
    "generation": generation.measure,
    "training": training_log.measure,
}


class EvaluationInterrupted(KeyboardInterrupt):
    """An evaluation stopped by Ctrl-C; `path` is the report of the results so far.

    ```python
    try:
        evaluation.evaluate(subject, dataset, "report")
    except evaluation.EvaluationInterrupted as stop:
        print(stop.path)
    ```
    """

    def __init__(self, path: Path, part: str):
        self.path = path
        super().__init__(f"Interrupted while measuring {part}; the results so far are in {path}")


def evaluate(
    subject: Subject,
    data: Dataset,
    out: str | Path,
    baseline: Subject | None = None,
    ood: tuple[str, ...] | None = None,
    attacks: tuple[str, ...] | None = None,
    budget: str = "quick",
    print_fn: Callable[[str], Any] = print,
    **options: Any,
) -> dict[str, Any]:
    """Measure `subject` on `data`, write a report to the directory `out`, return the metrics.

    ```python
    from jem_tf import data, evaluation
    evaluation.evaluate(evaluation.of(model, "mine"), data.load("digits"), "report")
    ```

    `out` then holds `report.html`, `metrics.json` and the pictures of the report. A part that
    raises an exception is listed in the metrics under "failed"; the others are still measured.

    Args:
        subject: what to evaluate.
        data: its test split is measured on, its training split is compared with samples.
        out: a directory, which is created if needed.
        baseline: a second subject, reported beside the first.
        ood: names of out-of-distribution sets; default those that suit `data`.
        attacks: names of `measures.robustness.ATTACKS`; default all for images.
        budget: a name in `BUDGETS`.
        print_fn: receives a line after each part.
        **options: `attack_sizes`, sizes by the name of an attack; `judge`, a subject that
            recognises samples, by default a classifier that is trained for it; `seed`; `data_dir`
            of TensorFlow Datasets; `resize`, whether to resize inputs of other shapes; `features`,
            a file for `measures.features.inception`; `log`, the `log.csv` of the training.
    """
    job = _make_job(subject, data, out, baseline, ood, attacks, budget, options)
    job.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {
        "package_version": VERSION,
        "data": data.name,
        "class_names": list(data.class_names),
        "budget": budget,
        "seed": job.seed,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "models": {subject.name: {} for subject in job.subjects},
        "notes": job.notes,
        "seconds": {},
        "failed": {},
        "interrupted": None,
    }
    try:
        for name, measure in PARTS.items():
            _run_part(name, measure, job, results, print_fn)
    finally:
        if any(results["models"].values()):
            write_json(job.out / METRICS_FILE, results)
            report.write(job.out, json.loads((job.out / METRICS_FILE).read_text()))
    return to_json(results)


def _make_job(
    subject: Subject,
    data: Dataset,
    out: str | Path,
    baseline: Subject | None,
    ood: tuple[str, ...] | None,
    attacks: tuple[str, ...] | None,
    budget: str,
    options: dict[str, Any],
) -> Job:
    """Check the arguments and load everything they name: an error should not cost minutes."""
    check_known("budget", budget, BUDGETS)
    if attacks is None:
        attacks = tuple(robustness.ATTACKS) if data.pixel_range is not None else ()
    for name in attacks:
        check_known("attack", name, robustness.ATTACKS)
    for name, sizes in options.get("attack_sizes", {}).items():
        if name not in attacks:
            raise ValueError(
                f"`attack_sizes` has sizes of {name!r}, which is not among the attacks "
                f"{', '.join(attacks) or 'none'}."
            )
        for size in sizes:
            check_not_negative(**{f"attack_sizes[{name!r}]": size})
    subjects = [subject] if baseline is None else [subject, baseline]
    for candidate in (*subjects, options.get("judge")):
        if candidate is not None:
            _check_fits(candidate, data)
    if len({candidate.name for candidate in subjects}) < len(subjects):
        raise ValueError(f"Two models must have two names. Received: {subject.name!r} twice")
    job = Job(subjects, data, tuple(attacks), BUDGETS[budget], Path(out), **options)
    if job.features is not None:
        job.extract = features.inception(job.features)
    names = ood_sets.companions(data) if ood is None else ood
    job.ood_inputs = {name: _load_ood_inputs(job, name) for name in names}
    report.check_installed()
    _fit_detectors(job)
    job.notes += [f"{s.name}: not measured, {text}" for s in subjects for text in s.limitations]
    return job


def _fit_detectors(job: Job) -> None:
    """Give subjects without a verdict a detector, fitted on validation rows as exports do."""
    without = [subject for subject in job.subjects if not subject.has_verdict]
    if not without or int(job.data.validation.cardinality()) == 0:
        return
    rows = job.labelled_rows("validation", MAX_CALIBRATION_ROWS)
    reference = job.labelled_rows("train", MAX_REFERENCE)
    for subject in without:
        try:
            subject.fit_detector(*rows, reference)
        except ValueError as error:
            job.notes.append(f"{subject.name}: no verdict. {error}")


def _run_part(
    name: str,
    measure: Callable[[Job], Results],
    job: Job,
    results: dict[str, Any],
    print_fn: Callable[[str], Any],
) -> None:
    """Run one part and add what it yields to `results` and to `metrics.json`."""
    begin = time.monotonic()
    try:
        for model, values in measure(job):
            results["models"][model].update(values)
            write_json(job.out / METRICS_FILE, results)
    except KeyboardInterrupt:
        results["interrupted"] = name
        if not any(results["models"].values()):
            raise  # there is nothing to report
        raise EvaluationInterrupted(job.out / "report.html", name) from None
    except Exception as error:  # the other parts can still be measured
        results["failed"][name] = f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARACTERS]
        print_fn(f"{name} failed: {results['failed'][name]}")
    results["seconds"][name] = time.monotonic() - begin
    print_fn(f"{name}: {results['seconds'][name]:.0f} s")


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` in one step, so that a reader never sees half a file."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps(to_json(value), indent=1, allow_nan=False) + "\n")
    os.replace(temporary, path)


def to_json(value: Any) -> Any:
    """Return `value` in types of JSON: dicts for dataclasses, None for non-finite numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_json(vars(value))
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def _load_ood_inputs(job: Job, name: str) -> np.ndarray:
    total = int(job.data.test.cardinality())
    n = job.budget.rows if total < 0 else min(job.budget.rows, total)
    return ood_sets.load(name, job.data, n, job.seed, job.data_dir, job.resize)


def _check_fits(subject: Subject, data: Dataset) -> None:
    """Raise `ValueError` unless `subject` takes the inputs and has the classes of `data`."""
    if tuple(subject.shape) != tuple(data.shape):
        raise ValueError(
            f"{subject.name} takes inputs of shape {tuple(subject.shape)}, {data.name} has "
            f"{tuple(data.shape)}: --resize (`image_size` when loading) resizes square images "
            "of folders and of TensorFlow Datasets."
        )
    if subject.num_classes != len(data.class_names):
        raise ValueError(
            f"{subject.name} has {subject.num_classes} classes, {data.name} has "
            f"{len(data.class_names)}: {', '.join(data.class_names)}."
        )
