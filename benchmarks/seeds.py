"""The same recipe with several seeds: the range of the results, and events of the guard.

    python benchmarks/seeds.py digits --seeds 10 [--out runs/seeds]
    python benchmarks/seeds.py fashion_mnist --data-dir DIR --epochs 2 --seeds 3

Each seed is a complete run. The script resumes interrupted runs when it is started again.
"""

import argparse
import dataclasses
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

from jem_tf import data
from jem_tf.data import ood_sets
from jem_tf.evaluation.measures.detection import detection
from jem_tf.training import RunSettings, recipes, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--data-dir")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/seeds"))
    arguments = parser.parse_args()
    rows = data.load(arguments.dataset, arguments.data_dir)
    recipe = recipes.get(recipes.default_for(rows))
    if arguments.epochs:
        recipe = dataclasses.replace(recipe, epochs=arguments.epochs)
    x, y = rows.arrays("test", 2000)
    patches = ood_sets.load("patches", rows, len(x))
    results = []
    for seed in range(arguments.seeds):
        out = arguments.out / f"{rows.name}-{recipe.epochs}-{seed}"
        keras.utils.clear_session()
        model = train(rows, RunSettings(recipe, seed=seed), out, resume=True, verbose=False)
        log = out / "events.jsonl"
        events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        accuracy = float((model.predict(x, verbose=0).argmax(1) == y).mean())
        auroc = detection(model.ood_score(x), model.ood_score(patches)).auroc
        results.append((accuracy, auroc, len(events)))
        print(
            f"seed {seed}: accuracy {100 * accuracy:.1f} %, AUROC of photographs by gradient norm "
            f"{auroc:.3f}, events {len(events)}",
            flush=True,
        )
    accuracies, aurocs, events = np.array(results).T
    print(
        f"{rows.name}, {recipe.epochs} epochs, {len(results)} seeds: accuracy "
        f"{100 * accuracies.mean():.1f} % (from {100 * accuracies.min():.1f} to "
        f"{100 * accuracies.max():.1f}), AUROC {aurocs.min():.3f} to {aurocs.max():.3f}, "
        f"events {int(events.sum())}"
    )


if __name__ == "__main__":
    main()
