"""Which settings keep a run on digits from diverging, at which learning rate.

    python benchmarks/stability.py [--epochs 40] [--rates 1 5 30] [--json FILE] [--only NAME ...]

A run without protection (the paper's loss and fixed step size, plain Adam) is repeated with one
setting changed at a time, and with all settings of the recipe, at multiples of the recipe's
learning rate. `DivergenceGuard` only counts, except in the rows that name it. Results are written
to FILE as they come; results that are already there are not computed again.
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
from jem_tf.evaluation.measures.detection import detection
from jem_tf.training import recipes

RECIPE = recipes.get("digits")
BARE = dataclasses.replace(
    RECIPE,
    step_size=1.0,
    noise=0.01,
    temperature=0.1,
    generative_weight=1.0,
    input_noise=0.0,
    clip_norm=None,
    ema=None,
    lag=1e9,
)
SETTINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "self-tuning step size": {"step_size": "auto", "noise": "tied", "temperature": 0.005},
    "lag 4": {"lag": 4.0},
    "weight 0.2": {"generative_weight": 0.2},
    "energy penalty 0.01": {"energy_penalty": 0.01},
    "gradients clipped at 1": {"clip_norm": 1.0},
    "spectral normalisation": {"backbone_options": {"spectral": True}},
    "input noise 0.05": {"input_noise": 0.05},
    "proximal clip 0.1": {"clip": 0.1},
    "averaged weights 0.99": {"ema": 0.99},
}


class CountingGuard(DivergenceGuard):
    """Reports divergence, and does not change the run."""

    def _roll_back(self, problem: str, vitals: dict[str, float]) -> None:
        self._report("divergence", problem, vitals)


def run(recipe: recipes.Recipe, guard: DivergenceGuard, seed: int) -> dict[str, Any]:
    """Train once; return accuracy, AUROC of the gradient norm against photographs, and events."""
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
    auroc = detection(*(model.ood_score(v, "gradient_norm") for v in (x, photographs))).auroc
    events = [event for event in guard.events if event["event"] == "divergence"]
    return {
        "accuracy": float((model.predict(x, verbose=0).argmax(1) == y).mean()),
        "auroc": auroc,
        "events": [f"{event['step']}: {event['message']}" for event in events],
        "readings": recipe.epochs * steps // guard.every,
        "skipped": int(model.progress.arrays()["skipped"]),
        "seconds": seconds,
        "vitals": model.health.vitals(),
    }


def settings_by_row(epochs: int) -> dict[str, tuple[recipes.Recipe, type[DivergenceGuard]]]:
    rows = {name: (dataclasses.replace(BARE, **s), CountingGuard) for name, s in SETTINGS.items()}
    rows["the recipe"] = (RECIPE, CountingGuard)
    rows["nothing, with the guard"] = (BARE, DivergenceGuard)
    rows["recipe and guard"] = (RECIPE, DivergenceGuard)
    return {name: (dataclasses.replace(r, epochs=epochs), g) for name, (r, g) in rows.items()}


def cell(result: dict[str, Any] | None) -> str:
    if result is None:
        return ""
    vitals = result["vitals"]
    text = f"{100 * result['accuracy']:.1f} %, {result['auroc']:.2f}, gap {vitals['gap']:.3g}"
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
    rows = settings_by_row(arguments.epochs)
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
