"""A training run of a likelihood model, Glow or PixelCNN++, into a run directory.

Not here: runs of a JEM (`run.py`). The directory holds `config.json`, `log.csv`, `result.json`,
`model.npz`, `samples.png`, and `checkpoints/` while it is not finished.
"""

import csv
import dataclasses
import inspect
import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jem_tf import likelihood, pictures
from jem_tf.checks import check_known
from jem_tf.data import Dataset
from jem_tf.likelihood.base import LikelihoodModel
from jem_tf.model.loading import CHECKPOINTS
from jem_tf.training import run_directory as files
from jem_tf.training.recipe_files import parse_value
from jem_tf.training.settings import DataSource, describe_changes
from jem_tf.version import VERSION

VALIDATION_ROWS = 1000
TRAINING = ("epochs", "batch_size", "learning_rate")
UNSETTABLE = ("settings", "network", "kwargs", "seed", "pixel_range")  # by --set


def train(
    data: Dataset,
    name: str,
    out: str | Path,
    options: dict[str, Any] | None = None,
    source: DataSource | None = None,
    *,
    seed: int = 0,
    overwrite: bool = False,
    resume: bool = False,
    verbose: bool = True,
) -> LikelihoodModel:
    """Train the model `name` of `likelihood.MODELS` on `data` into the directory `out`.

    ```python
    train(digits, "glow", "runs/glow", {"epochs": 1, "blocks": 1, "depth": 1, "width": 8})
    ```

    Args:
        data: images with known levels of black and white.
        name: "glow" or "pixelcnn".
        out: the run directory.
        options: arguments of the model, such as `epochs`; `classes=10` makes it conditional.
        source: where the data came from, for commands that load it again.
        seed: of the model and the training.
        overwrite: replace another run in `out`.
        resume: continue the run in `out`, if there is one; it must have the same settings.
        verbose: print a line for each epoch.
    """
    check_known("likelihood model", name, likelihood.MODELS)
    if data.pixel_range is None or len(data.shape) != 3:
        raise ValueError(
            f"Likelihood models learn images. Received: {data.name}, of shape {data.shape}"
        )
    out, options = Path(out), {**(options or {})}
    if data.name == "digits":
        options = {"levels": 17, **options}
    model = likelihood.MODELS[name](**options, pixel_range=data.pixel_range, seed=seed)
    config = _config(model, name, data, source or DataSource(data.name), options)
    if resume and files.is_run(out):
        changes = describe_changes(files.read_json(out / files.CONFIG), config)
        if changes:
            raise ValueError(f"The run in {str(out)!r} has other settings: {'; '.join(changes)}.")
        if (out / likelihood.MODEL_FILE).is_file():
            return likelihood.load(out)
    else:
        files.check_free(out, overwrite)
        shutil.rmtree(out, ignore_errors=True)
    begin = time.monotonic()
    x, y = data.arrays("train")
    with files.removed_on_failure(out):  # unless it has a checkpoint
        out.mkdir(parents=True, exist_ok=True)
        files.write_json(out / files.CONFIG, config)
        model.fit(
            x,
            y if model.classes else None,
            validation=data.arrays("validation", VALIDATION_ROWS)[0],
            verbose=verbose,
            checkpoint=out / CHECKPOINTS,
            on_epoch=lambda line: _log(out / files.LOG, line),
        )
    model.save(out / likelihood.MODEL_FILE)
    files.write_json(out / files.RESULT, {"training_seconds": time.monotonic() - begin})
    shutil.rmtree(out / CHECKPOINTS, ignore_errors=True)
    labels = None if not model.classes else np.arange(20) % model.classes
    pictures.save_grid(model.sample(20, labels, seed), 10, out / "samples.png")
    return model


def load_data(run: str | Path, data_dir: str | None = None) -> Dataset:
    """Load the data set that a run of a likelihood model was trained on."""
    source = DataSource(**files.read_json(Path(run) / files.CONFIG)["data"])
    return dataclasses.replace(source, data_dir=data_dir or source.data_dir).load()


def parse_options(name: str, assignments: Iterable[str]) -> dict[str, Any]:
    """Arguments of the model `name`, from assignments such as "width=32"."""
    own = inspect.signature(likelihood.MODELS[name]).parameters
    shared = inspect.signature(LikelihoodModel).parameters
    known = [key for key in {**own, **shared} if key not in UNSETTABLE]
    pairs = []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"`--set` needs KEY=VALUE. Received: {assignment!r}")
        pairs.append((key.strip().replace("-", "_"), text))
    for key, _ in pairs:
        check_known(f"setting of {name}", key, known)
    return {key: parse_value(text.strip()) for key, text in pairs}


def _config(
    model: LikelihoodModel, name: str, data: Dataset, source: DataSource, options: dict[str, Any]
) -> dict[str, Any]:
    """The content of `config.json`; a likelihood model is a network itself."""
    training = {key: getattr(model, key) for key in TRAINING}
    network = {key: value for key, value in options.items() if key not in TRAINING}
    config = {
        "version": VERSION,
        "data": dataclasses.asdict(source),
        "class_names": list(data.class_names),
        "objective": name,
        "seed": model.seed,
        "recipe": {"model": name, "options": network, **training},
    }
    return json.loads(json.dumps(config))  # lists, as in the file


def _log(path: Path, line: dict[str, float]) -> None:
    """Append an epoch to the log, with a head if it is the first."""
    new = not path.is_file()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(line), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(line)
