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
        scores = {**own_scores(model), **library_scores(model, reference)}
        print(f"\n{run}: {100 * model.is_ood(x).mean():.1f} % of the test rows flagged")
        print(f"{'':28}" + "".join(f"{name[:14]:>15}" for name in (*outside, "worst", "mean")))
        results[str(run)] = table = {}
        for label, score in scores.items():
            inside = score(x)
            values = {n: detection(inside, score(v), resamples=0).auroc for n, v in outside.items()}
            table[label] = values
            summary = (*values.values(), min(values.values()), np.mean(list(values.values())))
            print(f"{label:28}" + "".join(f"{v:15.3f}" for v in summary), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")


def own_scores(model: jem_tf.JEM) -> dict:
    """The fused score, then every statistic, as functions of inputs."""
    kinds = ("fused", *model.detector.names)
    return {kind: lambda x, kind=kind: model.ood_score(x, kind) for kind in kinds}


def library_scores(model: jem_tf.JEM, reference: tuple[np.ndarray, np.ndarray]) -> dict:
    """The scores of pytorch-ood, higher for inputs like the data, as functions of inputs."""
    if importlib.util.find_spec("pytorch_ood") is None:
        print("pytorch-ood is not installed: pip install jem_tf[ood]", file=sys.stderr)
        return {}
    if importlib.util.find_spec("torchvision") is None:
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
    return {
        "pytorch-ood MSP": lambda x: -MaxSoftmax.score(logits(x)).numpy(),
        "pytorch-ood energy": lambda x: -EnergyBased.score(logits(x)).numpy(),
        **{
            f"pytorch-ood {name}": lambda x, d=d: -np.asarray(d.predict_features(features(x)))
            for name, d in fitted.items()
        },
    }


if __name__ == "__main__":
    main()
