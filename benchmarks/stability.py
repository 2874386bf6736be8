"""Which settings keep a training of digits healthy at which learning rate.

    python benchmarks/stability.py [--epochs 40] [--rates 1 5 30] [--json FILE] [--only NAME ...]

A training without any protection (the paper's loss and fixed step size, plain Adam) is repeated
with one setting changed at a time, and with all that the recipe has, at multiples of the recipe's
learning rate. `DivergenceGuard` only watches, but for the rows that name it. Results are kept in
FILE as they come; what is there already is not run again.
"""

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras

from jem_tf import data
from jem_tf.callbacks import DivergenceGuard
from jem_tf.data import ood_sets
from jem_tf.evaluation.measures import detection as ood
from jem_tf.training import recipes

RECIPE = recipes.get("digits")
BARE = dataclasses.replace(
    RECIPE,
    step_size=1.0,
    noise=0.01,
    input_noise=0.0,
    clip_norm=None,
    ema=None,
    lag=1e9,
)
SETTINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "self-tuning step size": {"step_size": "auto"},
    "lag 10": {"lag": 10.0},
    "energy penalty 0.01": {"energy_penalty": 0.01},
    "gradients clipped at 1": {"clip_norm": 1.0},
    "spectral normalisation": {"backbone_options": {"spectral": True}},
    "input noise 0.05": {"input_noise": 0.05},
    "proximal clip 0.1": {"clip": 0.1},
    "averaged weights 0.99": {"ema": 0.99},
}


class Watcher(DivergenceGuard):
    """Counts what the guard would have done, and leaves the training alone."""

    def _roll_back(self, illness: str, vitals: dict[str, float]) -> None:
        self._report("divergence", illness, vitals)


def run(recipe: recipes.Recipe, guard: DivergenceGuard, seed: int) -> dict[str, Any]:
    """Train once; accuracy, AUROC by the gradient norm against photographs, and what befell."""
    digits = data.load("digits")
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    model = recipe.model(digits, seed)
    steps = -(-len(digits.train) // recipe.batch_size)
    model.compile(recipe.optimizer(steps), metrics=["accuracy"])
    begin = time.monotonic()
    model.fit(
        digits.epochs(recipe.batch_size, seed),
        steps_per_epoch=steps,
        epochs=recipe.epochs,
        shuffle=False,
        verbose=0,
        callbacks=[guard],
    )
    seconds = time.monotonic() - begin
    x, y = digits.arrays("test")
    photographs = ood_sets.load("patches", digits, len(x))
    found = ood.detection(model.ood_score(x), model.ood_score(photographs))
    falls = [event for event in guard.events if event["event"] == "divergence"]
    return {
        "accuracy": float((model.predict(x, verbose=0).argmax(1) == y).mean()),
        "auroc": found.auroc,
        "events": [f"{event['step']}: {event['message']}" for event in falls],
        "looks": recipe.epochs * steps // guard.every,
        "skipped": int(model.progress.arrays()["skipped"]),
        "seconds": seconds,
        "vitals": model.vitals(),
    }


def trainings(epochs: int) -> dict[str, tuple[recipes.Recipe, type[DivergenceGuard]]]:
    rows = {name: (dataclasses.replace(BARE, **s), Watcher) for name, s in SETTINGS.items()}
    rows["the recipe"] = (RECIPE, Watcher)
    rows["nothing, but the guard"] = (BARE, DivergenceGuard)
    rows["recipe and guard, no noise in chains"] = (
        dataclasses.replace(RECIPE, noise=0.0),
        DivergenceGuard,
    )
    rows["recipe and guard"] = (RECIPE, DivergenceGuard)
    return {name: (dataclasses.replace(r, epochs=epochs), g) for name, (r, g) in rows.items()}


def cell(result: dict[str, Any] | None) -> str:
    if result is None:
        return ""
    text = f"{100 * result['accuracy']:.1f} %, {result['auroc']:.2f}"
    events = len(result["events"])
    return text if not events else f"{text} ({events})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 5.0, 30.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=Path("runs/stability.json"))
    parser.add_argument("--only", nargs="+", help="names of rows")
    arguments = parser.parse_args()
    rows = trainings(arguments.epochs)
    if arguments.only:
        rows = {name: rows[name] for name in arguments.only}
    results = json.loads(arguments.json.read_text()) if arguments.json.is_file() else {}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    for name, (recipe, guard) in rows.items():
        for rate in arguments.rates:
            key = f"{name} | {rate:g} | {arguments.epochs} | {arguments.seed}"
            if key not in results:
                faster = dataclasses.replace(recipe, learning_rate=rate * recipe.learning_rate)
                results[key] = run(faster, guard(), arguments.seed)
                arguments.json.write_text(json.dumps(results, indent=1))
                print(f"{key}: {cell(results[key])}", flush=True)
    print("\n| | " + " | ".join(f"rate x {rate:g}" for rate in arguments.rates) + " |")
    print("|---|" + "---|" * len(arguments.rates))
    for name in rows:
        keys = [f"{name} | {r:g} | {arguments.epochs} | {arguments.seed}" for r in arguments.rates]
        print(f"| {name} | " + " | ".join(cell(results.get(key)) for key in keys) + " |")


if __name__ == "__main__":
    main()
