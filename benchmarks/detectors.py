"""The fused verdict beside the detectors of an OOD library, on the same networks and inputs.

    python benchmarks/detectors.py runs/fashion_mnist runs/plain --data-dir DIR \
        --ood mnist DIR/textures noise constant interpolations

The library is pytorch-ood (`pip install jem_tf[ood]`). It gets the logits and the features before
the last layer as arrays: MSP, energy, Mahalanobis, KNN and ViM. ODIN is missing: it needs the
network itself in PyTorch. The table is AUROC.
"""

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import jem_tf
from jem_tf.data import ood_sets
from jem_tf.evaluation.measures.detection import detection
from jem_tf.model.detecting import MAX_REFERENCE
from jem_tf.training import run_directory

SETS = ("noise", "constant", "interpolations")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data-dir")
    parser.add_argument("--ood", nargs="*", default=SETS)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--split", default="test", choices=("test", "validation"))
    parser.add_argument("--out", type=Path, default=Path("runs/detectors.json"))
    arguments = parser.parse_args()
    results = {}
    for run in arguments.runs:
        rows = run_directory.load_data(run, arguments.data_dir)
        if arguments.split == "validation":
            rows = rows.__class__(**{**vars(rows), "test": rows.validation})
        x = rows.arrays("test", arguments.rows)[0]
        outside = {
            Path(name).name: ood_sets.load(
                name, rows, arguments.rows, 0, arguments.data_dir, resize=True
            )
            for name in arguments.ood
        }
        reference = rows.arrays("train", MAX_REFERENCE)
        model = jem_tf.load(run)
        if not model.detector.fitted:
            model.fit_detector(*rows.arrays("validation"), reference=reference)
        detectors = [own_scores(model), library_scores(model, reference)]
        inside = {k: v for detector in detectors for k, v in detector(x).items()}
        results[str(run)] = table = {label: {} for label in inside}
        for name, inputs in outside.items():
            for detector in detectors:
                for label, scores in detector(inputs).items():
                    table[label][name] = detection(inside[label], scores, resamples=0).auroc
        print(f"\n{run}: {100 * model.is_ood(x).mean():.1f} % of the test rows flagged")
        print(f"{'':28}" + "".join(f"{name[:14]:>15}" for name in (*outside, "worst", "mean")))
        for label, aurocs in table.items():
            values = list(aurocs.values())
            columns = (*values, min(values), np.mean(values))
            print(f"{label:28}" + "".join(f"{value:15.3f}" for value in columns), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")


Scores = Callable[[np.ndarray], dict[str, np.ndarray]]  # of inputs, by name


def own_scores(model: jem_tf.JEM) -> Scores:
    """The fused score, then every statistic."""

    def score(x: np.ndarray) -> dict[str, np.ndarray]:
        values = model.statistics(x)
        fused = model.detector.score(values).numpy()
        return {"fused": fused, **dict(zip(model.detector.names, values.T))}

    return score


def library_scores(model: jem_tf.JEM, reference: tuple[np.ndarray, np.ndarray]) -> Scores:
    """The scores of pytorch-ood, higher for inputs like the data."""
    if importlib.util.find_spec("pytorch_ood") is None:
        print("pytorch-ood is not installed: pip install jem_tf[ood]", file=sys.stderr)
        return lambda x: {}
    if "torchvision" not in sys.modules and importlib.util.find_spec("torchvision") is None:
        # Its data sets and networks, which are not used here, need torchvision. Not every build
        # of PyTorch has one.
        parts = ("", ".transforms", ".transforms.functional", ".models", ".models.resnet")
        parts += (".datasets", ".datasets.folder", ".datasets.utils", ".utils", ".io")
        sys.modules.update({f"torchvision{part}": MagicMock() for part in parts})
    import torch
    from pytorch_ood.detector import KNN, EnergyBased, Mahalanobis, MaxSoftmax, ViM

    size = model.backbone.layers[-1].weights[0].shape[0]  # of the features before the last layer

    def features(x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(model.features(x)[:, -size:])

    def logits(x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(model.predict(x, batch_size=256, verbose=0))

    x, y = reference
    z, labels = features(x), torch.from_numpy(y.astype(np.int64))
    kernel, bias = (torch.from_numpy(w.numpy()) for w in model.backbone.layers[-1].weights)
    fitted = {
        "Mahalanobis": Mahalanobis(None).fit_features(z, labels),
        "KNN": KNN(None).fit_features(z, labels),
        "ViM": ViM(None, d=min(64, size // 2), w=kernel.T, b=bias).fit_features(z, labels),
    }

    def score(x: np.ndarray) -> dict[str, np.ndarray]:
        z, f = features(x), logits(x)
        outliers = {"MSP": MaxSoftmax.score(f), "energy": EnergyBased.score(f)}
        outliers |= {name: detector.predict_features(z) for name, detector in fitted.items()}
        return {f"pytorch-ood {name}": -np.asarray(values) for name, values in outliers.items()}

    return score


if __name__ == "__main__":
    main()
