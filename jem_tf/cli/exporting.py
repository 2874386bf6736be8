"""Commands that write and describe exports: `export` and `inspect`."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from jem_tf import saved_model
from jem_tf.data import Dataset, ood_sets
from jem_tf.detection.calibration import MAX_CALIBRATION_ROWS
from jem_tf.detection.detector import FUSED
from jem_tf.energy import OOD_SCORES
from jem_tf.model import load
from jem_tf.model.detecting import MAX_REFERENCE
from jem_tf.saved_model.description import describe
from jem_tf.saved_model.fitted import fit_verdict
from jem_tf.training import run_directory

MAX_OOD_ROWS = 1000  # of each set, for the AUROC table in `jem.json`


def export(arguments: Namespace) -> None:
    if arguments.pytorch is not None:
        from jem_tf import pytorch

        pytorch.save(load(arguments.model), arguments.pytorch)
        print(f"Wrote {arguments.pytorch}")
        return
    version = export_run(
        arguments.model,
        arguments.out,
        arguments.data_dir,
        refine_steps=arguments.refine_steps,
        sample_steps=arguments.sample_steps,
        examples=arguments.examples,
        max_image_pixels=arguments.max_image_pixels,
    )
    print(f"Wrote {version}")


def inspect(arguments: Namespace) -> None:
    print(describe(arguments.directory))


def export_run(
    run: str | Path, out: str | Path | None = None, data_dir: str | None = None, **options: Any
) -> Path:
    """Export the model of `run`, calibrated on validation data and measured on test data."""
    model, data = load(run), run_directory.load_data(run, data_dir)
    x, y = data.arrays("validation", MAX_CALIBRATION_ROWS)
    calibrate, reference = (x[y >= 0], y[y >= 0]), data.arrays("train", MAX_REFERENCE)
    fit_verdict(model, calibrate, reference)
    return saved_model.export(
        model,
        out or Path("saved_models") / data.name,
        calibrate=calibrate,
        test=data.arrays("test", MAX_CALIBRATION_ROWS),
        class_names=data.class_names,
        pixel_range=data.pixel_range,
        extra={"data": data.name, "auroc": _measure_auroc(model, data)},
        **options,
    )


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
