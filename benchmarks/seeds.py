"""The same recipe with several seeds: the range of the results, and events of the guard.

    python benchmarks/seeds.py digits --seeds 10 [--out runs/seeds]
    python benchmarks/seeds.py fashion_mnist --data-dir DIR --epochs 2 --seeds 3

Each seed is a complete run. The script resumes interrupted runs when it is started again.
"""

import argparse
import dataclasses
import json
import os
from collections.abc import Iterable
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
    x, y = rows.arrays("test")
    typical = rows.arrays("test", 2000)[0]
    patches = ood_sets.load("patches", rows, len(typical))
    results = []
    for seed in range(arguments.seeds):
        out = arguments.out / f"{rows.name}-{recipe.epochs}-{seed}"
        keras.utils.clear_session()
        model = train(rows, RunSettings(recipe, seed=seed), out, resume=True, verbose=False)
        log = out / "events.jsonl"
        events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        accuracy = float((model.predict(x, batch_size=256, verbose=0).argmax(1) == y).mean())
        norm, density = (
            detection(model.ood_score(typical, kind), model.ood_score(patches, kind)).auroc
            for kind in ("gradient_norm", "log_density")
        )
        vitals = model.health.vitals()
        row = (100 * accuracy, norm, density, vitals["trusted"], vitals["gap"], len(events))
        results.append(row)
        print(f"seed {seed}: {describe(zip(row, row))}", flush=True)
    ranges = list(zip(np.min(results, 0), np.max(results, 0)))
    mean = np.mean(results, 0)[0]
    print(f"{rows.name}, {recipe.epochs} epochs, {len(results)} seeds: mean accuracy {mean:.1f} %")
    print(describe(ranges))


def describe(ranges: Iterable[tuple[float, float]]) -> str:
    """The smallest and the largest value of each result, in words."""
    words = "accuracy", "photographs by gradient norm", "by log p(x)", "trusted", "gap", "events"
    texts = [f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}" for low, high in ranges]
    return ", ".join(f"{word} {text}" for word, text in zip(words, texts))


if __name__ == "__main__":
    main()
