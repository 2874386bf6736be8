"""Run directories: what a training leaves behind, and what is made of it.

Not here: the training itself (`training.py`).
"""

import dataclasses
import json
import os
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

import keras

from jem_tf._tf import checkpoints
from jem_tf.data import Dataset, UnknownDataset, ood_sets, resizes
from jem_tf.data import load as load_data
from jem_tf.energy import OOD_SCORES
from jem_tf.evaluation.measures.detection import detection
from jem_tf.model.jem import JEM
from jem_tf.saved_model.description import newest
from jem_tf.saved_model.exporter import export
from jem_tf.training.recipes import Recipe
from jem_tf.version import VERSION

CALIBRATION_ROWS = 10_000
OOD_ROWS = 1000  # of each set, for the table in an export


def save(model: keras.Model, path: Path) -> None:
    """Save `model` so that `path` never holds half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part.keras")
    model.save(temporary)
    os.replace(temporary, path)


def save_as_run(
    model: JEM,
    out: Path,
    recipe: Recipe,
    source: dict[str, Any],
    class_names: tuple[str, ...],
) -> None:
    """Leave a model that was trained elsewhere in `out` as a training here would."""
    if out.exists():
        shutil.rmtree(out)
    save(model, out / "model.keras")
    config: dict[str, Any] = {"version": VERSION, "data": source, "class_names": list(class_names)}
    config |= {"objective": "joint", "seed": 0, "recipe": dataclasses.asdict(recipe)}
    write_json(out / "config.json", config)


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
    """Export the model of `run`, calibrated on validation data and measured on test data."""
    model, data = load(run), data_of(run, data_dir)
    x, y = data.arrays("validation", CALIBRATION_ROWS)
    return export(
        model,
        out or Path("saved_models") / data.name,
        calibrate=(x[y >= 0], y[y >= 0]),
        test=data.arrays("test", CALIBRATION_ROWS),
        class_names=data.class_names,
        pixel_range=data.pixel_range,
        extra={"data": data.name, "auroc": _auroc(model, data)},
        **options,
    )


def _auroc(model: Any, data: Dataset) -> dict[str, dict[str, float]]:
    """How well each score tells test rows from inputs that do not belong."""
    x, _ = data.arrays("test", OOD_ROWS)
    inside = {kind: model.ood_score(x, kind) for kind in OOD_SCORES}
    found = {}
    for name in ood_sets.companions(data):
        try:
            other = ood_sets.load(name, data, len(x))
        except ValueError:  # such as test data of one class, between which nothing lies
            continue
        found[name] = {
            kind: detection(inside[kind], model.ood_score(other, kind), 0).auroc
            for kind in OOD_SCORES
        }
    return found


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
