"""Commands that write and describe exports: `export` and `inspect`."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jem_tf import saved_model
from jem_tf.data import Dataset, ood_sets, sources
from jem_tf.detection.calibration import MAX_CALIBRATION_ROWS
from jem_tf.detection.detector import FUSED
from jem_tf.energy import OOD_SCORES
from jem_tf.model import JEM, load
from jem_tf.model.classifiers import expected_pixels
from jem_tf.model.detecting import MAX_REFERENCE
from jem_tf.model.loading import load_any
from jem_tf.saved_model.compact import compact as compact_model
from jem_tf.saved_model.description import describe
from jem_tf.saved_model.exporter import wrap_classifier
from jem_tf.saved_model.fitted import fit_verdict
from jem_tf.training import run_directory

MAX_OOD_ROWS = 1000  # of each set, for the AUROC table in `jem.json`


def export(arguments: Namespace) -> None:
    if arguments.pytorch is not None:
        from jem_tf import pytorch

        pytorch.save(load(arguments.model), arguments.pytorch)
        print(f"Wrote {arguments.pytorch}")
        return
    version = export_model(
        arguments.model,
        arguments.out,
        arguments.data_dir,
        arguments.calibrate,
        tuple(arguments.pixel_range or ()) or None,
        arguments.label,
        arguments.columns,
        arguments.compact,
        refine_steps=arguments.refine_steps,
        sample_steps=arguments.sample_steps,
        examples=arguments.examples,
        lite=arguments.tflite,
        max_image_pixels=arguments.max_image_pixels,
    )
    print(f"Wrote {version}")


def inspect(arguments: Namespace) -> None:
    print(describe(arguments.directory))


def export_model(
    path: str | Path,
    out: str | Path | None = None,
    data_dir: str | None = None,
    calibrate: str | None = None,
    pixel_range: tuple[float, ...] | None = None,
    label: str | None = None,
    columns: Sequence[str] | None = None,
    compact: bool = False,
    **options: Any,
) -> Path:
    """Export the model at `path`, calibrated on validation data and measured on test data.

    The data is `calibrate`, or that of the run. A model that is no `JEM` gets no chains.
    """
    model: Any = load_any(path)
    plain = not isinstance(model, JEM)
    data = calibration_data(path, model, calibrate, data_dir, pixel_range, label, columns)
    x, y = data.arrays("validation", MAX_CALIBRATION_ROWS)
    labelled, reference = (x[y >= 0], y[y >= 0]), data.arrays("train", MAX_REFERENCE)
    if plain:
        model = wrap_classifier(model, reference)
    if model.num_classes != len(data.class_names):
        raise ValueError(
            f"{data.name} has {len(data.class_names)} classes. Received: {str(path)!r}, with "
            f"{model.num_classes} outputs"
        )
    if compact:
        compact_model(model)
    fit_verdict(model, labelled, reference)
    return saved_model.export(
        model,
        out or Path("saved_models") / data.name,
        calibrate=labelled,
        test=data.arrays("test", MAX_CALIBRATION_ROWS),
        class_names=data.class_names,
        pixel_range=data.pixel_range,
        extra={"data": data.name, "auroc": _measure_auroc(model, data)},
        with_chains=not plain,
        **options,
    )


def calibration_data(
    path: str | Path,
    model: Any,
    calibrate: str | None = None,
    data_dir: str | None = None,
    pixel_range: tuple[float, ...] | None = None,
    label: str | None = None,
    columns: Sequence[str] | None = None,
) -> Dataset:
    """The data set `calibrate`, or that of the run, with pixels as the model expects them."""
    shape = model.raw_shape if isinstance(model, JEM) else model.input_shape[1:]
    resizes = calibrate is not None and len(shape) == 3 and sources.resizes(calibrate)
    size = shape[0] if resizes else None
    if run_directory.is_run(path):
        return run_directory.load_data(
            path,
            data_dir,
            calibrate,
            label,
            columns=None if columns is None else tuple(columns),
            image_size=size,
            pixel_range=pixel_range,
        )
    if calibrate is None:
        raise ValueError(f"{str(path)!r} does not name its training data: use --calibrate DATA.")
    data = sources.load(calibrate, data_dir, size, label=label, columns=columns)
    pixels = pixel_range or expected_pixels(model)
    return data.with_pixels(*pixels) if pixels and data.pixel_range else data


def _measure_auroc(model: Any, data: Dataset) -> dict[str, dict[str, float]]:
    """AUROC of each score against each out-of-distribution set that suits the data."""
    from jem_tf.evaluation.measures.detection import detection

    x, _ = data.arrays("test", MAX_OOD_ROWS)
    kinds = (*([FUSED] if model.detector.fitted else []), *OOD_SCORES)
    inside = {kind: model.ood_score(x, kind) for kind in kinds}
    auroc = {}
    for name in ood_sets.companions(data):
        try:
            other = ood_sets.load(name, data, len(x))
        except ValueError:  # such as interpolations of test data of one class
            continue
        auroc[name] = {
            kind: detection(inside[kind], model.ood_score(other, kind), 0).auroc for kind in kinds
        }
    return auroc
