"""What a command may name as a model: run directories, files, exports, endpoints."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jem_tf import data
from jem_tf.data import Dataset
from jem_tf.data.folders import PIXEL_RANGE
from jem_tf.data.tables import SUFFIXES
from jem_tf.model.classifiers import expected_pixels
from jem_tf.model.loading import load_classifier
from jem_tf.saved_model import layout
from jem_tf.training import DataSource, RunSettings, run_directory


def load_data(
    target: str | Path,
    name: str | None,
    data_dir: str | None,
    image_size: int | None = None,
    label: str | None = None,
) -> Dataset:
    """Load the data set `name`, or the one that the model at `target` was trained on.

    Images of other sizes are resized to `image_size`, if the data set allows it, and have the
    pixels that the model expects. A table is read as the one that a run was trained on; `label` is
    the column of labels if it has another name.
    """
    if run_directory.is_run(target) and (name is None or name.endswith(SUFFIXES)):
        return run_directory.load_data(target, data_dir, name, label)
    dataset = name or _read_metadata(target).get("data")
    if dataset is None:
        raise ValueError(f"{str(target)!r} does not name its training data: use --dataset.")
    try:
        size = image_size if data.resizes(dataset) else None
        loaded = data.load(dataset, data_dir, size, label=label)
    except data.UnknownDataset as error:
        if name is not None:
            raise
        raise ValueError(
            f"{str(target)!r} was trained on {dataset!r}, which is not a known data set: use "
            "--dataset."
        ) from error
    pixels = _pixel_range(target)
    if pixels is None or loaded.pixel_range in (None, tuple(pixels)):
        return loaded
    return loaded.with_pixels(*pixels)


def with_expected_pixels(
    classifier: str | Path, source: DataSource, dataset: Dataset
) -> tuple[DataSource, Dataset]:
    """The source and data set with pixels in the range that `classifier` rescales, if it does."""
    pixels = expected_pixels(load_classifier(classifier))
    if pixels is None:
        return source, dataset
    print(f"{classifier} begins with Rescaling: its inputs are 0 to 255.", flush=True)
    return dataclasses.replace(source, pixel_range=pixels), dataset.with_pixels(*pixels)


def check_comparable(
    target: str | Path,
    other: str | Path,
    role: str = "baseline",
    pixels: Sequence[float] | None = None,
) -> None:
    """Raise `ValueError` if two models are the same, or are known to have other classes, or if
    `other` is known to expect other pixels than `target`, which expects `pixels`."""
    if Path(target).resolve() == Path(other).resolve():
        raise ValueError(f"The {role} must be another model than {str(target)!r}.")
    expected = _pixel_range(other)
    if expected is None and run_directory.is_run(other):
        expected = PIXEL_RANGE
    if pixels is not None and expected is not None and tuple(pixels) != tuple(expected):
        raise ValueError(
            f"The {role} {str(other)!r} expects pixels from {expected[0]:g} to {expected[1]:g}, "
            f"and {str(target)!r} from {pixels[0]:g} to {pixels[1]:g}. An evaluation gives both "
            "the same pixels: compare models of one range."
        )
    first, second = (_read_metadata(path).get("class_names") for path in (target, other))
    if first is not None and second is not None and first != second:
        raise ValueError(
            f"The {role} {str(other)!r} was trained on other classes ({', '.join(second)}) "
            f"than {str(target)!r} ({', '.join(first)})."
        )


def _pixel_range(target: str | Path) -> Sequence[float] | None:
    """The values of black and white pixels that the model at `target` expects, if it says so."""
    if run_directory.is_run(target):
        source = RunSettings.read(target).data
        return None if source is None else source.pixel_range
    if Path(target).is_file():
        return expected_pixels(load_classifier(target))
    return _read_metadata(target).get("pixel_range")


def _read_metadata(target: str | Path) -> dict[str, Any]:
    """What a run or an export says about itself; empty for files and endpoints."""
    if run_directory.is_run(target):
        return run_directory.read_json(Path(target) / run_directory.CONFIG)
    try:
        return layout.read_metadata(layout.newest(Path(target)))
    except ValueError:
        return {}
