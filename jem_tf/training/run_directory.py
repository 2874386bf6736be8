"""Run directories: the files that a training run leaves behind.

Not here: the training itself (`run.py`), loading the model (`model/loading.py`).
"""

import csv
import dataclasses
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jem_tf.data import Dataset, resizes
from jem_tf.model import JEM
from jem_tf.model.loading import CHECKPOINTS, MODEL_FILE, save
from jem_tf.training.settings import RunSettings

CONFIG, LOG, EVENTS, RESULT = "config.json", "log.csv", "events.jsonl", "result.json"


def is_run(path: str | Path) -> bool:
    """Whether there is a run directory at `path`."""
    return (Path(path) / CONFIG).is_file()


def load_data(
    run: str | Path,
    data_dir: str | None = None,
    dataset: str | None = None,
    label: str | None = None,
    **changes: Any,
) -> Dataset:
    """Load the data set that a run was trained on, from `data_dir` if it is elsewhere now.

    `dataset` is read in its place, in the same way, and must have its classes. `changes` are other
    fields of `DataSource`; None keeps the value of the run.
    """
    settings = RunSettings.read(run)
    assert settings.data is not None
    source = settings.data
    changes |= {"dataset": dataset, "data_dir": data_dir, "label": label}
    source = dataclasses.replace(source, **{k: v for k, v in changes.items() if v is not None})
    if not resizes(source.dataset):
        source = dataclasses.replace(source, image_size=None)
    loaded = dataclasses.replace(source, pixel_range=None).load()
    if source.pixel_range is not None and loaded.pixel_range is not None:
        loaded = loaded.with_pixels(*source.pixel_range)
    names = tuple(read_json(Path(run) / CONFIG)["class_names"])
    if loaded.class_names != names:
        raise ValueError(
            f"{str(run)!r} was trained on the classes {', '.join(names)}. Received: "
            f"{source.dataset!r} with {', '.join(loaded.class_names)}"
        )
    return loaded


def save_imported(
    model: JEM, out: Path, settings: RunSettings, class_names: tuple[str, ...]
) -> None:
    """Write a run directory for a model that was trained elsewhere."""
    assert settings.data is not None
    if out.exists():
        shutil.rmtree(out)
    save(model, out / MODEL_FILE)
    write_json(out / CONFIG, settings.to_config(settings.data.dataset, class_names))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_log(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the log up to a checkpoint, replacing lines that were written after it."""
    with path.open("w", newline="") as file:
        if rows:
            names = ["epoch", *sorted(set(rows[0]) - {"epoch"})]
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


@contextmanager
def removed_on_failure(run: Path) -> Iterator[None]:
    """Remove `run` if the block raises before the first checkpoint: the next try needs the place.

    An interruption is no failure.
    """
    try:
        yield
    except Exception:
        if not any((run / CHECKPOINTS).glob("*")):
            shutil.rmtree(run, ignore_errors=True)
        raise


def check_free(path: Path, overwrite: bool) -> None:
    """Raise `ValueError` unless a run may be written to `path`."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not overwrite:
        raise ValueError(
            f"{str(path)!r} exists and holds another run: choose another directory, resume it with "
            "--resume (resume=True), or replace it with --overwrite (overwrite=True)."
        )
    if not is_run(path) or not {"recipe", "objective"} <= set(read_json(path / CONFIG)):
        raise ValueError(f"{str(path)!r} is not a run directory: not overwritten.")
