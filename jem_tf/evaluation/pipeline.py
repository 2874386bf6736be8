"""The whole evaluation, part by part, into a directory with metrics, pictures and a report.

Not here: the measures, the charts, the page. Each part is written down as soon as it is done, so
that an interruption loses only the part it falls into.
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

from jem_tf.checks import check_known
from jem_tf.data import Dataset, ood_sets
from jem_tf.evaluation.budget import BUDGETS
from jem_tf.evaluation.measures import generation, robustness
from jem_tf.evaluation.parts import measurements as parts
from jem_tf.evaluation.parts.measurements import Job
from jem_tf.evaluation.report import page as report
from jem_tf.evaluation.subjects.in_process import Subject
from jem_tf.version import VERSION


class Interrupted(KeyboardInterrupt):
    """Evaluation was stopped by Ctrl-C; what was finished is in `path`."""

    def __init__(self, path: Path, part: str):
        self.path = path
        super().__init__(f"Interrupted while measuring {part}; what was finished is in {path}")


def evaluate(
    subject: Subject,
    data: Dataset,
    out: str | Path,
    baseline: Subject | None = None,
    ood: tuple[str, ...] | None = None,
    attacks: tuple[str, ...] | None = None,
    budget: str = "quick",
    say: Callable[[str], Any] = print,
    **options: Any,
) -> dict[str, Any]:
    """Measure `subject`, and `baseline` beside it, on `data`, into directory `out`.

    ```python
    from jem_tf import data, evaluation
    evaluation.evaluate(evaluation.of(model, "mine"), data.load("digits"), "report")
    ```

    Leaves `report.html`, `metrics.json` and the pictures in them, and returns the metrics. `ood`
    are names of sets that do not belong, `attacks` names of `robustness.ATTACKS`. Further
    options: `seed`, `data_dir`, `resize` (inputs of other shapes), `features` (a file for
    `generation.inception`), `log` (the training's `log.csv`).
    """
    ood = ood_sets.companions(data) if ood is None else tuple(ood)
    images = data.pixel_range is not None
    attacks = tuple((robustness.ATTACKS if images else ()) if attacks is None else attacks)
    check_known("budget", budget, BUDGETS)
    for name in attacks:
        check_known("attack", name, robustness.ATTACKS)
    subjects = [subject] if baseline is None else [subject, baseline]
    for one in subjects:
        _check_subject(one, data)
    if len({one.name for one in subjects}) < len(subjects):
        raise ValueError(f"Two models must have two names. Received: {subject.name!r} twice")
    job = Job(subjects, data, attacks, BUDGETS[budget], Path(out), **options)
    # Everything named is loaded before anything is measured: a mistake should not cost minutes.
    extract = None if job.features is None else generation.inception(job.features)
    sets = {name: _outside(job, name) for name in ood}
    report.check_installed()
    job.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {
        "package_version": VERSION,
        "data": data.name,
        "class_names": list(data.class_names),
        "budget": budget,
        "seed": job.seed,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "models": {one.name: {} for one in subjects},
        "notes": job.notes,
        "seconds": {},
        "failed": {},
        "interrupted": None,
    }
    for one in subjects:
        job.notes += [f"{one.name}: not measured, {what}" for what in one.lacks]
    plan: dict[str, Callable[[Job], parts.Found]] = {
        "classification": parts.classify,
        "out-of-distribution detection": lambda job: parts.detect(job, sets),
        "robustness": parts.attack,
        "generation": lambda job: parts.generate(job, extract),
        "training": parts.train_log,
    }
    try:
        for name, part in plan.items():
            begin = time.monotonic()
            try:
                for model, found in part(job):
                    results["models"][model].update(found)
                    write(job.out / "metrics.json", results)
            except KeyboardInterrupt:
                results["interrupted"] = name
                if not any(results["models"].values()):
                    raise  # nothing to report
                raise Interrupted(job.out / "report.html", name) from None
            except Exception as error:  # of one part: the others can still be measured
                results["failed"][name] = f"{type(error).__name__}: {error}"[:500]
                say(f"{name} failed: {results['failed'][name]}")
            results["seconds"][name] = time.monotonic() - begin
            say(f"{name}: {results['seconds'][name]:.0f} s")
    finally:
        if any(results["models"].values()):
            write(job.out / "metrics.json", results)
            report.write(job.out, json.loads((job.out / "metrics.json").read_text()))
    return plain(results)


def write(path: Path, value: Any) -> None:
    """JSON that never is half a file, with null for what is not a number."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps(plain(value), indent=1, allow_nan=False) + "\n")
    os.replace(temporary, path)


def _outside(job: Job, name: str) -> np.ndarray:
    total = int(job.data.test.cardinality())
    n = job.budget.rows if total < 0 else min(job.budget.rows, total)
    return ood_sets.load(name, job.data, n, job.seed, job.data_dir, job.resize)


def _check_subject(subject: Subject, data: Dataset) -> None:
    if tuple(subject.shape) != tuple(data.shape):
        raise ValueError(
            f"{subject.name} takes inputs of shape {tuple(subject.shape)}, {data.name} has "
            f"{tuple(data.shape)}: --resize (`image_size` when loading) resizes square images "
            "of folders and of TensorFlow Datasets."
        )
    if subject.num_classes != len(data.class_names):
        raise ValueError(
            f"{subject.name} knows {subject.num_classes} classes, {data.name} has "
            f"{len(data.class_names)}: {', '.join(data.class_names)}."
        )


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(vars(value))
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
