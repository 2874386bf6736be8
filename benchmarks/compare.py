"""Objectives and settings side by side: the same network and data, the same time or epochs.

    python benchmarks/compare.py digits --seconds 60
    python benchmarks/compare.py fashion_mnist --data-dir DIR --seconds 240 --ood mnist noise
    python benchmarks/compare.py fashion_mnist --data-dir DIR --epochs 2 --objectives joint \\
      --settings "20 steps: steps=20" "5 steps: steps=5" --seeds 0 1 2
    python benchmarks/compare.py fashion_mnist --data-dir DIR --rates --objectives joint \\
      --settings "20 steps: steps=20" "5 steps: steps=5"
    python benchmarks/compare.py digits --rates --objectives cross_entropy joint hdge
    python benchmarks/compare.py cifar10 --recipe cifar10-small --from runs/plain --data-dir DIR \\
      --seconds 60
    python benchmarks/compare.py digits --epochs 30 --objectives hdge --settings \\
      "conditional: objective_options.classifies=false, objective_options.temperature=0.1"

Each run is a directory below --out with a `result.json`. Runs that exist with the same settings are
not repeated, so that an interrupted comparison continues. Prints the tables of
docs/results/objectives.md, with two more columns: the fused AUROC divided by that of the best
statistic, for the set where this is least, and the share of test rows that the verdict flags.
`paper_tables.py` reads the directories.
"""

import argparse
import dataclasses
import itertools
import json
import os
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from detectors import own_scores

from jem_tf import data, objectives
from jem_tf.callbacks import DivergenceGuard
from jem_tf.data import ood_sets
from jem_tf.detection import calibration
from jem_tf.detection.detector import FUSED
from jem_tf.evaluation.measures import robustness
from jem_tf.evaluation.measures.detection import detection
from jem_tf.model.classifiers import without_softmax
from jem_tf.model.detecting import MAX_REFERENCE
from jem_tf.model.loading import load_classifier
from jem_tf.training import recipe_files, recipes

SCORES = {"gradient_norm": "gradient norm", "log_density": "log p(x)", "max_probability": "max p"}
PGD_SIZES = (4, 12, 26)  # gray levels of 255


class Clock(keras.callbacks.Callback):
    """Counts steps and their time without the first step, which traces; stops after `seconds`."""

    def __init__(self, seconds: float | None):
        super().__init__()
        self.seconds, self.begin, self.steps, self.elapsed = seconds, 0.0, 0, 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.begin == 0.0:
            self.begin = time.perf_counter()
            return
        self.steps += 1
        self.elapsed = time.perf_counter() - self.begin
        if self.seconds is not None and self.elapsed > self.seconds:
            self.model.stop_training = True


def run(
    rows: data.Dataset,
    recipe: recipes.Recipe,
    objective: str,
    seed: int,
    seconds: float | None,
    ood_inputs: dict[str, np.ndarray],
    out: Path,
    classifier: str | None = None,
) -> dict[str, Any]:
    """Train, measure, and save the model to `out`. It begins with `classifier`, if there is one."""
    out.mkdir(parents=True, exist_ok=True)
    events = out / "events.jsonl"
    events.write_text("")
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)
    per_epoch = -(-len(rows.train) // recipe.batch_size)
    if seconds is None:
        recipe = recipe.limited(per_epoch)
    network = None if classifier is None else without_softmax(load_classifier(classifier))
    model = recipe.model(rows, seed, objective, network)
    model.compile(recipe.optimizer(per_epoch, objective), metrics=["accuracy"])
    model.adapt(rows.batches("train", recipe.batch_size))
    guards = [DivergenceGuard(log=events)] if model.objective.uses_chains else []
    clock = Clock(seconds)
    model.fit(
        rows.epochs(recipe.batch_size, seed, augment=recipe.augments_rows),
        steps_per_epoch=per_epoch,
        epochs=recipe.epochs if seconds is None else 1_000_000,
        shuffle=False,
        verbose=0,
        callbacks=[*guards, clock],
    )
    vitals = model.health.vitals()  # of the last steps
    model.save(out / "model.keras")
    return {
        **measure(model, rows, ood_inputs),
        "images_per_second": clock.steps * recipe.batch_size / clock.elapsed,
        "epochs": (clock.steps + 1) / per_epoch,
        "events": len(events.read_text().splitlines()),
        **({k: vitals[k] for k in ("trusted", "gap")} if model.objective.uses_chains else {}),
    }


def print_rates(
    rows: data.Dataset, settings: dict[str, recipes.Recipe], names: list[str], rounds: int = 7
) -> None:
    """Print images per second; all take turns, so that noise affects all of them."""
    x, y = rows.arrays("train", 1024)
    models: dict[str, Any] = {}
    for objective, (name, recipe) in itertools.product(names, settings.items()):
        model = recipe.model(rows, 0, objective)
        model.compile(recipe.optimizer(1, objective), metrics=["accuracy"])
        models[f"{objective} {name}".strip()] = model, recipe.batch_size
    rates: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(rounds + 1):
        for name, (model, batch_size) in models.items():
            clock = Clock(None)
            model.fit(x, y, batch_size=batch_size, verbose=0, callbacks=[clock])
            if turn:  # the first turn traces
                rates[name].append(clock.steps * batch_size / clock.elapsed)
    first = next(iter(rates.values()))
    for name, values in rates.items():
        ratio = float(np.median(np.divide(values, first)))
        spread = f"{min(values):.0f} to {max(values):.0f} in {rounds} rounds"
        print(f"{name}: {np.median(values):.0f} images/s ({spread}), {ratio:.2f} of the first")


def measure(model: Any, rows: data.Dataset, ood_inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return what the tables show, for test rows and for out-of-distribution inputs."""
    x, y = rows.arrays("test")
    logits = model.predict(x, batch_size=256, verbose=0)
    in_inputs = x[:: max(1, len(x) // 2000)][:2000]
    attacked = slice(None, None, max(1, len(x) // 250))
    low, high = rows.pixel_range or (float(x.min()), float(x.max()))
    sizes = [size / 255 for size in PGD_SIZES]
    network = model.backbone
    curve = robustness.attack(
        "linf", network, x[attacked][:250], y[attacked][:250], (low, high), sizes, steps=20
    )
    reference = rows.arrays("train", MAX_REFERENCE)
    model.fit_detector(*rows.arrays("validation"), reference=reference)
    score = own_scores(model)
    inside, outside = score(in_inputs), defaultdict(dict)
    for name, other in ood_inputs.items():
        for kind, scores in score(other).items():
            outside[kind][name] = detection(inside[kind], scores, resamples=0).auroc
    fused = outside.pop(FUSED)
    best = {name: max(aurocs[name] for aurocs in outside.values()) for name in fused}
    return {
        "accuracy": calibration.classification(logits, y).accuracy,
        "ece": calibration.reliability(*calibration.confidence_of(logits, y)).ece,
        "auroc": {FUSED: fused, **{kind: outside[kind] for kind in SCORES}},
        "fused_of_best": min(fused[name] / best[name] for name in fused),
        "flagged": float(model.is_ood(in_inputs).mean()),
        "pgd": curve.accuracy[1:],
        "robustness": {"": [dataclasses.asdict(curve)]},  # as in metrics.json
    }


def parse_setting(text: str, recipe: recipes.Recipe) -> tuple[str, recipes.Recipe]:
    """Return the name and the changed recipe of a setting such as "fast: steps=5, clip=0.1"."""
    name, _, changes = text.partition(":")
    return name.strip(), recipe_files.change(recipe, filter(str.strip, changes.split(",")))


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return a line per setting: means over the seeds, and the range of the accuracy."""
    sets = list(next(iter(results.values()))[0]["auroc"]["log_density"])
    scores = {FUSED: FUSED, **SCORES}
    head = ["", "accuracy", "ECE", *(f"AUROC {name}" for name in scores.values())]
    head += ["fused / best single", "flagged"]
    head += [f"PGD {' / '.join(map(str, PGD_SIZES))}", "images/s", "epochs", "trusted, gap"]
    head += ["events"]
    lines = [f"AUROC: {' / '.join(sets)}", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, runs in results.items():
        mean = partial(_mean, runs)
        percents = [100 * r["accuracy"] for r in runs]
        spread = f" ({min(percents):.1f} to {max(percents):.1f})" if len(runs) > 1 else ""
        aurocs = [
            " / ".join(f"{mean('auroc', kind, s):.2f}".removeprefix("0") for s in sets)
            for kind in scores
        ]
        pgd = " / ".join(f"{100 * mean('pgd', i):.0f}" for i in range(len(PGD_SIZES)))
        cells = [name, f"{mean('accuracy') * 100:.1f} %{spread}", f"{100 * mean('ece'):.1f} %"]
        cells += [*aurocs, f"{mean('fused_of_best'):.3f}", f"{100 * mean('flagged'):.1f} %"]
        cells += [f"{pgd} %", f"{mean('images_per_second'):.0f}", f"{mean('epochs'):.1f}"]
        chains = "trusted" in runs[0]
        cells.append(f"{mean('trusted'):.2f}, {mean('gap'):.2f}" if chains else "")
        lines.append(f"| {' | '.join([*cells, str(sum(r['events'] for r in runs))])} |")
    return "\n".join(lines)


def _mean(runs: list[Any], *keys: Any) -> float:
    """Return the mean over `runs` of the value at the path `keys`."""
    for key in keys:
        runs = [run[key] for run in runs]
    return float(np.mean(runs))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--data-dir")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, help="time of steps, at a constant learning rate")
    length.add_argument("--epochs", type=int, help="with the schedule of the recipe")
    length.add_argument("--rates", action="store_true", help="only images per second")
    names = list(objectives.OBJECTIVES)
    parser.add_argument("--recipe", help="default: that of the data")
    parser.add_argument("--from", dest="classifier", help="run or model that each begins with")
    parser.add_argument("--objectives", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--settings", nargs="+", default=[""], help="NAME: FIELD=VALUE, ..., as --set of train"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--ood", nargs="+")
    parser.add_argument(
        "--split", choices=("validation", "test"), default="test", help="to measure on"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    rows = data.load(arguments.dataset, arguments.data_dir)
    if arguments.split == "validation":
        fit, measured = (rows.validation.shard(2, i) for i in range(2))  # a detector is fitted
        rows = dataclasses.replace(rows, validation=fit, test=measured)
    recipe = recipes.get(arguments.recipe or recipes.default_for(rows))
    if arguments.seconds:  # the number of steps is not known: no schedule, and a small buffer
        constant = {"warmup": None, "drops": (), "cosine": False, "ema": 0.98}
        recipe = dataclasses.replace(recipe, **constant, capacity=recipe.capacity or 200)
    elif arguments.epochs:
        recipe = dataclasses.replace(recipe, epochs=arguments.epochs)
    settings = dict(parse_setting(text, recipe) for text in arguments.settings)
    if arguments.rates:
        return print_rates(rows, settings, arguments.objectives)
    ood_inputs = {
        Path(name).name: ood_sets.load(name, rows, 2000, 0, arguments.data_dir, resize=True)
        for name in arguments.ood or ood_sets.companions(rows)
    }
    length = f"{arguments.seconds:g}s" if arguments.seconds else f"{recipe.epochs}-epochs"
    results: dict[str, list[dict[str, Any]]] = {}
    for seed, (name, changed), objective in itertools.product(
        arguments.seeds, settings.items(), arguments.objectives
    ):
        both = f"{objective} {name}".strip()
        label = both if len(arguments.objectives) > 1 else name or objective
        out = arguments.out / f"{rows.name}-{length}-{seed}-{both}".replace(" ", "-")
        key = {
            "data": rows.name,
            "objective": objective,
            "seed": seed,
            "seconds": arguments.seconds,
        }
        key |= {"recipe": dataclasses.asdict(changed), "split": arguments.split}
        key |= {"from": arguments.classifier} if arguments.classifier else {}
        key = json.loads(json.dumps({**key, "ood": list(ood_inputs)}))
        file = out / "result.json"
        if not file.is_file() or json.loads(file.read_text()).get("settings") != key:
            result = run(
                rows,
                changed,
                objective,
                seed,
                arguments.seconds,
                ood_inputs,
                out,
                arguments.classifier,
            )
            file.write_text(json.dumps({"settings": key, **result}, indent=1))
        results.setdefault(label, []).append(json.loads(file.read_text()))
        print(table({f"{label}, seed {seed}": results[label][-1:]}), flush=True)
    print(f"\n{table(results)}")


if __name__ == "__main__":
    main()
