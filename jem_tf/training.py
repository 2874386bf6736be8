"""A training run: a directory with settings, log, checkpoints, the model and its samples.

Not here: what a step does (`model.py`), which settings (`recipes.py`).
"""

import csv
import dataclasses
import json
import os
import shutil
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import distribute, pictures
from jem_tf.callbacks import DivergenceGuard, Resume, SampleGrid, checkpoints
from jem_tf.data import Dataset, UnknownDataset, resizes
from jem_tf.data import load as load_data
from jem_tf.export import export
from jem_tf.inspection import newest
from jem_tf.model import JEM
from jem_tf.recipes import Recipe
from jem_tf.version import VERSION

CALIBRATION_ROWS = 5_000
OBJECTIVES = ("joint", "cross_entropy")


def train(
    data: Dataset,
    recipe: Recipe,
    out: str | Path,
    seed: int = 0,
    objective: str = "joint",
    overwrite: bool = False,
    verbose: Any = "auto",
    source: dict[str, Any] | None = None,
    resume: bool = False,
    force: bool = False,
    save_seconds: float = 60.0,
    strategy: tf.distribute.Strategy | None = None,
) -> JEM:
    """Train by `recipe` on `data` and leave in directory `out`:

    `config.json`, `log.csv` (a line each epoch), `events.jsonl` (what the `DivergenceGuard` had to
    do, if anything), `chains/` (pictures of the buffer, ten over the run), `checkpoints/` (every
    `save_seconds`), `model.keras` and `samples.png` (ten of each class). With
    `objective="cross_entropy"` the backbone is trained as a plain classifier, with the same
    settings, and saved as a JEM to compare with. `source` is
    what `data.load` needs to find the data again. With `resume`, the run in `out` goes on from
    its last checkpoint, if there is one and it has these settings, or `force` says to go on all
    the same. With a `strategy` of several workers, each calls this with the same settings; the
    first one writes, and all read `out`.
    """
    strategy = strategy or tf.distribute.get_strategy()
    worker = distribute.worker(strategy)
    if objective not in OBJECTIVES:
        raise ValueError(f"`objective` must be one of {OBJECTIVES}. Received: {objective!r}")
    if objective != "joint" and distribute.is_multi_worker(strategy):
        raise ValueError(f"More than one worker train a JEM only. Received: {objective!r}")
    out = Path(out)
    config = {
        "version": VERSION,
        "data": source or {"dataset": data.name, "image_size": None},
        "rows": len(data.train),
        "class_names": list(data.class_names),
        "objective": objective,
        "seed": seed,
        "recipe": dataclasses.asdict(recipe),
    }
    going_on = resume and (out / "config.json").is_file()
    if going_on:
        changes = _changes(read_json(out / "config.json"), json.loads(json.dumps(config)))
        if changes and not force:
            raise ValueError(
                f"The run in {str(out)!r} has other settings: {'; '.join(changes)}. --force "
                "(force=True) goes on all the same; the result is then of no one training."
            )
        if not changes and (out / "model.keras").is_file():
            return load(out)
    elif worker == 0:
        check_free(out, overwrite)
    keras.utils.set_random_seed(seed)
    steps = -(-len(data.train) // recipe.batch_size)
    with strategy.scope():
        model = recipe.model(data, seed)
        trained: keras.Model = model if objective == "joint" else model.backbone
        loss = None if objective == "joint" else keras.losses.SparseCategoricalCrossentropy(True)
        trained.compile(recipe.optimizer(steps), loss=loss, metrics=["accuracy"])
    model.adapt(data.batches("train", recipe.batch_size))
    if worker == 0:
        if out.exists() and not going_on:  # now that nothing is left to go wrong but the training
            shutil.rmtree(out)
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "config.json", config)
    first, *others = distribute.everyones(strategy, config)
    for number, other in enumerate(others, 1):
        if differ := _changes(first, other):
            raise ValueError(
                f"Worker {number} has other settings than the first: {'; '.join(differ)}."
            )
    saver = Resume(out / "checkpoints", save_seconds)
    watchers: list[keras.callbacks.Callback] = []
    if objective == "joint":
        watchers.append(DivergenceGuard(log=out / "events.jsonl" if worker == 0 else None))
    if worker == 0:
        if objective == "joint" and len(data.shape) == 3:
            watchers.append(SampleGrid(out / "chains", every=max(1, recipe.epochs // 10)))
        _write_log(out / "log.csv", saver.history)
        watchers.append(keras.callbacks.CSVLogger(out / "log.csv", append=True))
    begin = time.monotonic()
    trained.fit(
        data.epochs(recipe.batch_size, seed, saver.epoch, recipe.augment),
        steps_per_epoch=steps,
        validation_data=data.batches("test", recipe.batch_size),
        epochs=recipe.epochs,
        verbose=verbose if worker == 0 else 0,
        shuffle=False,  # the data set shuffles
        callbacks=[*watchers, saver],
    )
    seconds = time.monotonic() - begin
    with model.buffer.gathered():
        if worker > 0:
            return model
        save(model, out / "model.keras")
    write_json(out / "result.json", {"training_seconds": seconds})
    if len(data.shape) == 3:
        classes = np.repeat(np.arange(len(data.class_names)), 10)
        pictures.save_grid(model.sample(len(classes), classes, seed=seed), 10, out / "samples.png")
    return model


def _changes(old: Any, new: Any, name: str = "") -> list[str]:
    """What differs between two settings, in words; where the data lies does not matter."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in {**old, **new} if key != "data_dir"]
        return [c for k in keys for c in _changes(old.get(k), new.get(k), f"{name} {k}".strip())]
    return [] if old == new else [f"{name} was {old!r} and is {new!r}"]


def _write_log(path: Path, rows: list[dict[str, Any]]) -> None:
    """The log of the epochs before a checkpoint, whatever was written after it."""
    with path.open("w", newline="") as file:
        if rows:
            names = ["epoch", *sorted(set(rows[0]) - {"epoch"})]
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def save(model: keras.Model, path: Path) -> None:
    """Save `model` so that `path` never holds half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part.keras")
    model.save(temporary)
    os.replace(temporary, path)


def load(path: str | Path) -> JEM:
    """The model of a run directory or of a `.keras` file."""
    path = Path(path)
    file = path / "model.keras" if path.is_dir() else path
    if not file.is_file():
        found = checkpoints.newest(path / "checkpoints")
        if found is not None:
            warnings.warn(
                f"{str(path)!r} is not finished: this is its last checkpoint.", stacklevel=2
            )
            return _unfinished(found[0] / checkpoints.MODEL)
        raise ValueError(f"There is no trained model at {str(file)!r}.")
    model = read_model(file)
    if not isinstance(model, JEM):
        raise ValueError(f"{str(file)!r} holds a {type(model).__name__}, not a JEM.")
    return model


def _unfinished(file: Path) -> JEM:
    """The model of a checkpoint as it would be if training had ended there."""
    model = read_model(file)
    model.optimizer.finalize_variable_values(model.trainable_variables)
    return model if isinstance(model, JEM) else JEM(model)


def read_model(file: Path) -> keras.Model:
    """The Keras model in `file`; `ValueError` if there is none."""
    try:
        return keras.saving.load_model(file)
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{str(file)!r} is not a model that Keras can load: {error}") from error


def settings(run: str | Path) -> dict[str, Any]:
    """What `config.json` of a run says, with its recipe as a `Recipe`."""
    config = Path(run) / "config.json"
    if not config.is_file():
        raise ValueError(f"{str(run)!r} is not a run directory: it has no config.json.")
    try:
        content = read_json(config)
        recipe = content["recipe"]
        content["recipe"] = Recipe(**{**recipe, "drops": tuple(recipe["drops"])})
        content["data"]["dataset"], content["data"]["image_size"]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{str(config)!r} is not the settings of a run: {error!r}") from error
    return content


def data_of(run: str | Path, data_dir: str | None = None) -> Dataset:
    """The data set that a run was trained on."""
    source = settings(run)["data"]
    return load_data(source["dataset"], data_dir or source.get("data_dir"), source["image_size"])


def data_for(
    target: str | Path, name: str | None, data_dir: str | None, image_size: int | None
) -> Dataset:
    """The data set `name`, or the one that the model at `target` says it was trained on.

    Images of other sizes are resized to `image_size`, where the set allows it.
    """
    if name is None and (Path(target) / "config.json").is_file():
        return data_of(target, data_dir)
    known = name or _facts(target).get("data")
    if known is None:
        raise ValueError(f"{str(target)!r} does not say what to test it on: give --dataset.")
    try:
        return load_data(known, data_dir, image_size if resizes(known) else None)
    except UnknownDataset as error:
        if name is not None:
            raise
        raise ValueError(
            f"{str(target)!r} was trained on {known!r}, which is no known set: give --dataset."
        ) from error


def check_comparable(run: str | Path, baseline: str | Path) -> None:
    """Raise `ValueError` if two models are known to have been trained on other classes."""
    first, second = (_facts(path).get("class_names") for path in (run, baseline))
    if first is not None and second is not None and first != second:
        raise ValueError(
            f"The baseline {str(baseline)!r} was trained on other classes ({', '.join(second)}) "
            f"than {str(run)!r} ({', '.join(first)})."
        )


def _facts(target: str | Path) -> dict[str, Any]:
    """What a run or an export says about itself; nothing for files and endpoints."""
    config = Path(target) / "config.json"
    if config.is_file():
        return read_json(config)
    try:
        facts = newest(Path(target)) / "assets.extra" / "jem.json"
    except ValueError:
        return {}
    return read_json(facts) if facts.is_file() else {}


def export_run(
    run: str | Path, out: str | Path | None = None, data_dir: str | None = None, **options: Any
) -> Path:
    """Export the model of `run`, calibrated on every other test row.

    `calibration` in `jem.json` is about those rows, `test` about the rest.
    """
    model, data = load(run), data_of(run, data_dir)
    x, y = data.arrays("test", 2 * CALIBRATION_ROWS)
    return export(
        model,
        out or Path("saved_models") / data.name,
        calibrate=(x[::2], y[::2]),
        test=(x[1::2], y[1::2]),
        class_names=data.class_names,
        pixel_range=data.pixel_range,
        extra={"data": data.name},
        **options,
    )


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def check_free(path: Path, overwrite: bool) -> None:
    """Raise `ValueError` unless a run may be written to `path`."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not overwrite:
        raise ValueError(
            f"{str(path)!r} exists and holds another run: choose another place, go on with it by "
            "--resume (resume=True), or replace it with --overwrite (overwrite=True)."
        )
    config = path / "config.json"
    if not config.is_file() or not {"recipe", "objective"} <= set(read_json(config)):
        raise ValueError(f"{str(path)!r} is not a run directory: not overwritten.")
