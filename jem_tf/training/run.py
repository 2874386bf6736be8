"""A training run: from a recipe and data to a directory with the model.

Not here: what a step does (`model/jem.py`), which settings there are (`recipe.py`).
"""

import importlib.util
import shutil
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import pictures
from jem_tf._tf import distribution
from jem_tf.callbacks import DivergenceGuard, EpochLine, Resume, SampleGrid
from jem_tf.data import Dataset
from jem_tf.model import JEM, load
from jem_tf.model.classifiers import without_softmax
from jem_tf.model.loading import CHECKPOINTS, MODEL_FILE, load_classifier, save
from jem_tf.training import recipe_files
from jem_tf.training import run_directory as files
from jem_tf.training.settings import RunSettings, describe_changes, upgrade_config

START_ROWS = 1000  # validation rows that a classifier to start from is measured on


def train(
    data: Dataset,
    settings: RunSettings,
    out: str | Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    force: bool = False,
    save_seconds: float = 60.0,
    strategy: tf.distribute.Strategy | None = None,
    tensorboard: bool = False,
    verbose: bool = True,
) -> JEM:
    """Train by `settings` on `data` into the directory `out`, and return the model.

    ```python
    digits = data.load("digits")
    train(digits, RunSettings(recipes.get("digits")), "runs/digits")
    ```

    The directory holds `config.json`, `recipe.toml`, `log.csv` (a line for each epoch),
    `events.jsonl` (what the `DivergenceGuard` had to do, if anything), `chains/` (pictures of the
    buffer, ten over the run), `checkpoints/`, `model.keras` and `samples.png` (ten of each class;
    not of a plain classifier).

    Args:
        data: what to train and validate on.
        settings: recipe, objective and seed. The objective "cross_entropy" trains the same network
            as a plain classifier, to compare with.
        out: the run directory.
        overwrite: replace another run in `out`.
        resume: continue the run in `out` from its last checkpoint, if there is one. It must have
            the same settings.
        force: resume although settings differ.
        save_seconds: time between two checkpoints.
        strategy: with several workers, each calls this with the same settings; the chief writes.
        tensorboard: write TensorBoard logs to `out/tensorboard`.
        verbose: print a line for each epoch.
    """
    if tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise ValueError("TensorBoard logs need another package: pip install tensorboard")
    strategy = strategy or tf.distribute.get_strategy()
    is_chief = distribution.worker_index(strategy) == 0
    talks = verbose and is_chief
    out, recipe = Path(out), settings.recipe
    config = settings.to_config(data.name, data.class_names, len(data.train))
    resuming = resume and files.is_run(out)
    if resuming:
        saved = upgrade_config(files.read_json(out / files.CONFIG))
        changes = describe_changes(saved, config)
        if changes and not force:
            raise ValueError(
                f"The run in {str(out)!r} has other settings: {'; '.join(changes)}. --force "
                "(force=True) resumes it with the new settings; the result is then a mixture of "
                "both."
            )
        if not changes and (out / MODEL_FILE).is_file():
            return load(out)
    elif is_chief:
        files.check_free(out, overwrite)
    keras.utils.set_random_seed(settings.seed)
    steps = -(-len(data.train) // recipe.batch_size)
    recipe = recipe.limited(steps)
    with strategy.scope():
        model = recipe.model(
            data, settings.seed, settings.objective, _network(data, settings, talks)
        )
        model.compile(recipe.optimizer(steps, settings.objective), metrics=["accuracy"])
    if talks and model.objective.uses_chains:
        print(f"Chains compute the network in {model.chain_dtype}.", flush=True)
    model.adapt(data.batches("train", recipe.batch_size))
    new = is_chief and not resuming
    with files.removed_on_failure(out) if new else nullcontext():
        if new and out.exists():  # only now: nothing is left that can fail early
            shutil.rmtree(out)
        if is_chief:
            out.mkdir(parents=True, exist_ok=True)
            files.write_json(out / files.CONFIG, config)
            recipe_files.write(settings, data.name, out / recipe_files.FILE)
        _check_agreement(distribution.gather_settings(strategy, config))
        saver = Resume(out / CHECKPOINTS, save_seconds)
        callbacks = _callbacks(model, data, settings, out, saver, is_chief)
        callbacks += [EpochLine()] if talks else []
        callbacks += [keras.callbacks.TensorBoard(out / "tensorboard")] if tensorboard else []
        if settings.classifier is not None and talks and not resuming:
            _report_start(model, data)
        begin = time.monotonic()
        model.fit(
            data.epochs(recipe.batch_size, settings.seed, saver.epoch, recipe.augments_rows),
            steps_per_epoch=steps,
            validation_data=data.batches("validation", recipe.batch_size),
            epochs=recipe.epochs,
            verbose=0,
            shuffle=False,  # the data set shuffles
            callbacks=[*callbacks, saver],
        )
    seconds = time.monotonic() - begin
    with model.buffer.gathered():
        if not is_chief:
            return model
        save(model, out / MODEL_FILE)
    files.write_json(out / files.RESULT, {"training_seconds": seconds})
    if len(data.shape) == 3 and settings.objective != "cross_entropy":  # it learns no density
        classes = np.repeat(np.arange(len(data.class_names)), 10)
        samples = model.sample(len(classes), classes, seed=settings.seed)
        pictures.save_grid(samples, 10, out / "samples.png")
    return model


def _network(data: Dataset, settings: RunSettings, verbose: bool) -> keras.Model | None:
    """The trained classifier that a run starts from; None if there is none."""
    if settings.classifier is None:
        return None
    loaded = load_classifier(settings.classifier)
    network = without_softmax(loaded)
    if network is not loaded and verbose:
        print(f"The softmax at the end of {settings.classifier} is taken off.", flush=True)
    received = (network.input_shape[1:], network.output_shape[1:])
    if received != (data.shape, (len(data.class_names),)):
        raise ValueError(
            f"{data.name} has inputs of shape {data.shape} and {len(data.class_names)} classes. "
            f"Received: {settings.classifier!r}, with inputs of shape {received[0]} and outputs of "
            f"shape {received[1]}"
        )
    return network


def _report_start(model: JEM, data: Dataset) -> None:
    """Print how well the classifier that a run starts from does; warn if it is near chance."""
    x, y = data.arrays("validation", START_ROWS)
    accuracy = (model.predict(x, batch_size=256, verbose=0).argmax(1) == y)[y >= 0].mean()
    print(f"It begins with an accuracy of {accuracy:.1%} on validation rows.", flush=True)
    if accuracy < 1 / len(data.class_names) + 0.05:
        warnings.warn(
            f"The classifier is near chance on {data.name}: {accuracy:.1%}. Were its classes in "
            f"this order ({', '.join(data.class_names[:3])}, ...), and its inputs in this range "
            f"({data.pixel_range or 'that of the data'})? --pixel-range 0 255 sets another one.",
            stacklevel=3,
        )


def _callbacks(
    model: JEM, data: Dataset, settings: RunSettings, out: Path, saver: Resume, is_chief: bool
) -> list[keras.callbacks.Callback]:
    """The guard, and what the chief writes."""
    callbacks: list[keras.callbacks.Callback] = []
    if model.objective.uses_chains:
        callbacks.append(DivergenceGuard(log=out / files.EVENTS if is_chief else None))
    if is_chief:
        if model.objective.uses_chains and len(data.shape) == 3:
            every = max(1, settings.recipe.epochs // 10)
            callbacks.append(SampleGrid(out / "chains", every=every))
        files.write_log(out / files.LOG, saver.history)
        callbacks.append(keras.callbacks.CSVLogger(out / files.LOG, append=True))
    return callbacks


def _check_agreement(configs: list[dict[str, Any]]) -> None:
    """Raise `ValueError` unless all workers have the settings of the first."""
    for number, config in enumerate(configs):
        if changes := describe_changes(configs[0], config):
            raise ValueError(
                f"Worker {number} has other settings than the first: {'; '.join(changes)}."
            )
