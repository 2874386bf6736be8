"""The fused verdict beside the detectors of an OOD library, on the same networks and inputs.

    python benchmarks/detectors.py runs/fashion_mnist runs/plain --data-dir DIR \
        --ood mnist DIR/textures noise constant interpolations

The library is pytorch-ood (`pip install jem_tf[ood]`). It gets the logits and the features before
the last layer as arrays: MSP, energy, Mahalanobis, KNN and ViM. ODIN gets a PyTorch module that
asks the network for logits and gradients. The table is AUROC.
"""

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import jem_tf
from jem_tf.data import ood_sets
from jem_tf.evaluation.measures.detection import detection
from jem_tf.model.detecting import MAX_REFERENCE
from jem_tf.training import run_directory

if TYPE_CHECKING:
    import torch

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
    from pytorch_ood.detector import KNN, ODIN, EnergyBased, Mahalanobis, MaxSoftmax, ViM

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

    odin = ODIN(torch_module(model), norm_std=[0.5])  # its step is for inputs from 0 to 1

    def score(x: np.ndarray) -> dict[str, np.ndarray]:
        z, f = features(x), logits(x)
        outliers = {"MSP": MaxSoftmax.score(f), "energy": EnergyBased.score(f)}
        outliers |= {name: detector.predict_features(z) for name, detector in fitted.items()}
        parts = torch.from_numpy(x).split(256)
        outliers["ODIN"] = torch.cat([odin.predict(part) for part in parts])
        return {f"pytorch-ood {name}": -np.asarray(values) for name, values in outliers.items()}

    return score


def torch_module(model: jem_tf.JEM) -> "torch.nn.Module":
    """The network as a PyTorch module with gradients with respect to its input."""
    import torch

    @tf.function(reduce_retracing=True)
    def forward(x: tf.Tensor) -> tf.Tensor:
        return tf.cast(model.backbone(x, training=False), tf.float32)

    @tf.function(reduce_retracing=True)
    def backward(x: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            logits = forward(x)
        return tape.gradient(logits, x, gradient)

    class Logits(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return torch.from_numpy(forward(x.detach().numpy()).numpy())

        @staticmethod
        def backward(context, gradient):
            (x,) = context.saved_tensors
            return torch.from_numpy(backward(x.detach().numpy(), gradient.numpy()).numpy())

    class Network(torch.nn.Module):
        def forward(self, x):
            return Logits.apply(x)

    return Network()


if __name__ == "__main__":
    main()
