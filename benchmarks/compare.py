"""All objectives side by side: the same network, data and wall-clock budget.

    python benchmarks/compare.py digits --seconds 60
    python benchmarks/compare.py fashion_mnist --data-dir DIR --seconds 240 --ood mnist noise

Each training is a directory below --out with its `result.json`; those that are there are not run
again, so a comparison that was interrupted goes on. Prints the table of docs/objectives.md.
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
import numpy as np

from jem_tf import data, evaluation, objectives, recipes
from jem_tf.callbacks import DivergenceGuard
from jem_tf.data import ood_sets

SCORES = {"gradient_norm": "gradient norm", "log_density": "log p(x)", "max_probability": "max p"}


class Budget(keras.callbacks.Callback):
    """Stops after `seconds` of steps, not counting the first, which builds the graph."""

    def __init__(self, seconds: float):
        super().__init__()
        self.seconds, self.begin, self.steps = seconds, 0.0, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.begin == 0.0:
            self.begin = time.perf_counter()
            return
        self.steps += 1
        self.spent = time.perf_counter() - self.begin
        if self.spent > self.seconds:
            self.model.stop_training = True


def run(name: str, rows: Any, recipe: Any, arguments: Any, out: Path) -> dict[str, Any]:
    """Train by the objective `name`, measure."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(arguments.seed)
    model = recipe.model(rows, arguments.seed, name)
    model.compile(recipe.optimizer(1), metrics=["accuracy"])
    model.adapt(rows.batches("train", recipe.batch_size))
    budget, callbacks = Budget(arguments.seconds), []
    if model.objective.chains:
        callbacks.append(DivergenceGuard(log=out / "events.jsonl"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "events.jsonl").write_text("")
    steps = -(-len(rows.train) // recipe.batch_size)
    model.fit(
        rows.epochs(recipe.batch_size, arguments.seed, 0, recipe.augment),
        steps_per_epoch=steps,
        epochs=100_000,
        shuffle=False,
        verbose=0,
        callbacks=[*callbacks, budget],
    )
    ood = tuple(arguments.ood or ood_sets.companions(rows))
    measured = evaluation.evaluate(
        evaluation.of(model, name),
        rows,
        out / "report",
        None,
        ood,
        ("linf",),
        seed=arguments.seed,
        data_dir=arguments.data_dir,
        say=lambda _: None,
    )
    model.save(out / "model.keras")
    (found,) = measured["models"].values()
    return {
        "objective": name,
        "accuracy": found["classification"]["accuracy"],
        "ece": found["calibration"]["before"]["ece"],
        "auroc": {k: {s: d["auroc"] for s, d in v.items()} for k, v in found["ood"].items()},
        "robustness": found.get("robustness"),
        "images_per_second": budget.steps * recipe.batch_size / budget.spent,
        "epochs": budget.steps / steps,
        "divergences": len((out / "events.jsonl").read_text().splitlines()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--data-dir")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--objectives", nargs="+", default=list(objectives.OBJECTIVES))
    parser.add_argument("--ood", nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    arguments = parser.parse_args()
    rows = data.load(arguments.dataset, arguments.data_dir)
    recipe = recipes.get(recipes.default_for(rows))
    # A constant rate: how many steps fit in the budget is what differs.
    recipe = dataclasses.replace(recipe, warmup=None, drops=())
    results = []
    for name in arguments.objectives:
        out = arguments.out / f"{rows.name}-{arguments.seconds:.0f}s-{arguments.seed}-{name}"
        if not (out / "result.json").is_file():
            found = run(name, rows, recipe, arguments, out)
            (out / "result.json").write_text(json.dumps(found, indent=1))
        results.append(json.loads((out / "result.json").read_text()))
        print(f"{name}: accuracy {100 * results[-1]['accuracy']:.1f} %", flush=True)
    print(table(results))


def table(results: list[dict[str, Any]]) -> str:
    sets = list(next(iter(results[0]["auroc"].values())))
    head = ["objective", "accuracy", "ECE", *(f"AUROC {SCORES[k]}" for k in SCORES)]
    head += ["PGD 4 / 12 / 26", "images/s", "epochs", "events"]
    lines = [f"AUROC: {' / '.join(sets)}", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for r in results:
        aurocs = [
            " / ".join(f"{r['auroc'][kind][name]:.2f}".lstrip("0") for name in sets)
            for kind in SCORES
        ]
        cells = [r["objective"], f"{100 * r['accuracy']:.1f} %", f"{100 * r['ece']:.1f} %", *aurocs]
        cells += [pgd(r), f"{r['images_per_second']:.0f}", f"{r['epochs']:.1f}"]
        lines.append(f"| {' | '.join([*cells, str(r['divergences'])])} |")
    return "\n".join(lines)


def pgd(result: dict[str, Any]) -> str:
    curves = (result["robustness"] or {}).get("", [])
    for curve in curves:
        if curve["attack"] == "linf":
            accuracy = dict(zip(curve["epsilons"], curve["accuracy"]))
            wanted = [min(accuracy, key=lambda e: abs(e - size / 255)) for size in (4, 12, 26)]
            return " / ".join(f"{100 * accuracy[size]:.0f}" for size in wanted) + " %"
    return "–"


if __name__ == "__main__":
    np.seterr(over="ignore")
    main()
