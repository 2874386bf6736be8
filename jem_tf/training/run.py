"""A training run: from a recipe and data to a directory with the model.

Not here: what a step does (`model.py`), which settings (`recipes.py`), how a run is read
(`runs.py`).
"""

import csv
import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import objectives, pictures
from jem_tf._tf import distribution as distribute
from jem_tf.callbacks import DivergenceGuard, Resume, SampleGrid
from jem_tf.checks import check_known
from jem_tf.data import Dataset
from jem_tf.model.jem import JEM
from jem_tf.training import run_directory as runs
from jem_tf.training.recipes import Recipe
from jem_tf.version import VERSION


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
    `objective="cross_entropy"` the same network is trained as a plain classifier, to compare
    with. `source` is what `data.load` needs to find the data again. With `resume`, the run in
    `out` goes on from its last checkpoint, if there is one and it has these settings, or `force`
    says to go on all the same. With a `strategy` of several workers, each calls this with the same
    settings; the first one writes, and all read `out`.
    """
    strategy = strategy or tf.distribute.get_strategy()
    worker = distribute.worker(strategy)
    check_known("objective", objective, objectives.OBJECTIVES)
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
        changes = _changes(runs.read_json(out / "config.json"), json.loads(json.dumps(config)))
        if changes and not force:
            raise ValueError(
                f"The run in {str(out)!r} has other settings: {'; '.join(changes)}. --force "
                "(force=True) goes on all the same; the result is then of no one training."
            )
        if not changes and (out / "model.keras").is_file():
            return runs.load(out)
    elif worker == 0:
        runs.check_free(out, overwrite)
    keras.utils.set_random_seed(seed)
    steps = -(-len(data.train) // recipe.batch_size)
    with strategy.scope():
        model = recipe.model(data, seed, objective)
        model.compile(recipe.optimizer(steps), metrics=["accuracy"])
    model.adapt(data.batches("train", recipe.batch_size))
    if worker == 0:
        if out.exists() and not going_on:  # now that nothing is left to go wrong but the training
            shutil.rmtree(out)
        out.mkdir(parents=True, exist_ok=True)
        runs.write_json(out / "config.json", config)
    _check_agreement(distribute.everyones(strategy, config))
    saver = Resume(out / "checkpoints", save_seconds)
    callbacks: list[keras.callbacks.Callback] = []
    if model.objective.chains:
        callbacks.append(DivergenceGuard(log=out / "events.jsonl" if worker == 0 else None))
    if worker == 0:
        if model.objective.chains and len(data.shape) == 3:
            callbacks.append(SampleGrid(out / "chains", every=max(1, recipe.epochs // 10)))
        _write_log(out / "log.csv", saver.history)
        callbacks.append(keras.callbacks.CSVLogger(out / "log.csv", append=True))
    begin = time.monotonic()
    model.fit(
        data.epochs(recipe.batch_size, seed, saver.epoch, recipe.augments_rows),
        steps_per_epoch=steps,
        validation_data=data.batches("validation", recipe.batch_size),
        epochs=recipe.epochs,
        verbose=verbose if worker == 0 else 0,
        shuffle=False,  # the data set shuffles
        callbacks=[*callbacks, saver],
    )
    seconds = time.monotonic() - begin
    with model.buffer.gathered():
        if worker > 0:
            return model
        runs.save(model, out / "model.keras")
    runs.write_json(out / "result.json", {"training_seconds": seconds})
    if len(data.shape) == 3:
        classes = np.repeat(np.arange(len(data.class_names)), 10)
        pictures.save_grid(model.sample(len(classes), classes, seed=seed), 10, out / "samples.png")
    return model


def _check_agreement(configs: list[dict[str, Any]]) -> None:
    """Raise `ValueError` unless all workers have the settings of the first."""
    for number, other in enumerate(configs):
        if differ := _changes(configs[0], other):
            raise ValueError(
                f"Worker {number} has other settings than the first: {'; '.join(differ)}."
            )


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
