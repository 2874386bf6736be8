"""log p(x) and -||d log p(x)/dx|| as detectors: likelihood models beside IGEBM and JEM.

    jem-tf train fashion_mnist --objective glow --out runs/glow
    python benchmarks/likelihood.py runs/glow runs/jem --data-dir DIR --ood mnist noise constant

Runs are those of likelihood models and of JEMs on the same data. Prints AUROC by score and set, and
writes it to a file that `paper_tables.py` reads. Below .5, the other set is *more* likely.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import jem_tf
from jem_tf import likelihood
from jem_tf.data import Dataset, ood_sets
from jem_tf.evaluation.measures.detection import detection
from jem_tf.training import likelihood as likelihood_runs
from jem_tf.training import run_directory

SETS = ("noise", "constant", "interpolations")
SCORES = likelihood.SCORES
NAMES = {"log_density": "log p(x)", "gradient_norm": "−‖∂ log p(x)/∂x‖"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data-dir")
    parser.add_argument("--ood", nargs="*", default=SETS, help="names of sets, or folders")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--picture", type=Path, help="histograms of the scores, as PNG")
    parser.add_argument("--out", type=Path, default=Path("runs/likelihood.json"))
    arguments = parser.parse_args()
    keras.utils.disable_interactive_logging()  # no progress bars of `predict`
    results, scores = {}, {}
    for run in arguments.runs:
        model, data = open_run(run, arguments.data_dir)
        x, y = data.arrays("test", arguments.rows)
        sets = {data.name: x} | {
            Path(name).name: ood_sets.load(
                name, data, arguments.rows, 0, arguments.data_dir, resize=True
            )
            for name in arguments.ood
        }
        scores[str(run)] = {
            kind: {name: np.asarray(model.ood_score(rows, kind)) for name, rows in sets.items()}
            for kind in SCORES
        }
        results[str(run)] = measure(model, x, y, scores[str(run)])
        print_table(run, results[str(run)])
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"likelihood": results}, indent=1) + "\n")
    if arguments.picture is not None:
        draw(scores, arguments.picture)


def open_run(run: Path, data_dir: str | None) -> tuple[Any, Dataset]:
    """The model of a run, a likelihood model or a JEM, and its data."""
    if (run / likelihood.MODEL_FILE).is_file():
        return likelihood.load(run), likelihood_runs.load_data(run, data_dir)
    return jem_tf.load(run), run_directory.load_data(run, data_dir)


def measure(
    model: Any, x: np.ndarray, y: np.ndarray, scores: dict[str, dict[str, np.ndarray]]
) -> dict[str, Any]:
    """AUROC of each score on each set; of likelihood models, bits per dimension as well."""
    result: dict[str, Any] = {"auroc": {}}
    for kind, (inside, *outside) in ((k, list(s.items())) for k, s in scores.items()):
        result["auroc"][kind] = {
            name: detection(inside[1], values, resamples=0).auroc for name, values in outside
        }
    if isinstance(model, likelihood.LikelihoodModel):
        result["bits_per_dim"] = float(model.bits_per_dim(x).mean())
    if getattr(model, "classes", 1):
        result["accuracy"] = float((np.asarray(model.predict(x)).argmax(1) == y).mean())
    return result


def print_table(run: Path, result: dict[str, Any]) -> None:
    others = "".join(f", {k} {result[k]:.3f}" for k in ("bits_per_dim", "accuracy") if k in result)
    print(f"\n{run}{others}")
    names = list(result["auroc"][SCORES[0]])
    print(f"{'':20}" + "".join(f"{name[:14]:>15}" for name in names))
    for kind, aurocs in result["auroc"].items():
        print(f"{NAMES[kind]:20}" + "".join(f"{v:15.3f}" for v in aurocs.values()), flush=True)


def draw(scores: dict[str, dict[str, dict[str, np.ndarray]]], path: Path) -> None:
    """A row of histograms for each run: log p(x), and the negative norm of its gradient."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(scores), len(SCORES), figsize=(9, 2.4 * len(scores)), squeeze=False
    )
    for row, (run, kinds) in zip(axes, scores.items()):
        for axis, (kind, sets) in zip(row, kinds.items()):
            ends = np.array([np.nanquantile(v, [0.01, 0.99]) for v in sets.values()])
            edges = np.linspace(ends[:, 0].min(), ends[:, 1].max(), 61)
            for name, values in sets.items():
                values = np.clip(values[np.isfinite(values)], edges[0], edges[-1])
                axis.hist(values, edges, density=True, alpha=0.5, label=name)
            axis.set_title(f"{Path(run).name}: {NAMES[kind]}", fontsize=9)
            axis.set_yscale("log")
            axis.set_yticks([])
            axis.minorticks_off()
            axis.tick_params(labelsize=8)
    axes[0][-1].legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
