"""What runs measured, from the files that they leave: the input of `paper_tables.py`.

Not here: tables. Nothing is measured again.
"""

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

MEMBERS = {  # in words, and in the order of rows that a source does not have
    "cross_entropy": "classifier only",
    "joint": "JEM",
    "factored": "JEM, p(x given y) factored",
    "igebm": "IGEBM",
    "hdge": "HDGE",
    "hdge only": "log q(x given y) only",
    "supcon": "supervised contrastive",
    "nce": "NCE",
    "fce": "FCE",
    "dual_adversarial": "dual adversarial",
    "score_matching": "score matching",
    "energy_discrepancy": "energy discrepancy",
    "glow": "Glow",
    "pixelcnn": "PixelCNN++",
}


@dataclass(frozen=True)
class Result:
    """What was measured of one member; `values` is nested dicts of numbers, with shares up to 1."""

    member: str
    setting: str  # data set, network and budget
    recipe: str  # all settings but the seed
    seeds: tuple[int, ...]
    values: dict[str, Any]

    def get(self, *keys: str) -> Any:
        """Return the value at the path `keys`; None if there is none."""
        return _get(self.values, *keys)

    @property
    def name(self) -> str:
        return MEMBERS.get(self.member, self.member)

    def __str__(self) -> str:
        seeds = ", ".join(map(str, self.seeds))
        return f"{self.setting}, seed{'s' * (len(self.seeds) > 1)} {seeds}"


def read(path: Path) -> list[Result]:
    """Return the results at `path`; a line to stderr says if there are none."""
    files = (
        [path]
        if path.suffix == ".json"
        else [path / "report" / "metrics.json", path / "result.json"]
    )
    file = next((file for file in files if file.is_file()), None)
    content = json.loads(file.read_text()) if file is not None else {}
    if "models" in content and (path / "config.json").is_file():
        first = next(iter(content["models"].values()))  # a baseline has a directory of its own
        return [_of_run(path, _of_metrics(first))]
    if "settings" in content:
        return [_of_comparison(content)]
    if "likelihood" in content:
        runs = content["likelihood"].items()
        return [_of_run(Path(r), {**v, "auroc": _by_base_name(v["auroc"])}) for r, v in runs]
    if content and all((Path(run) / "config.json").is_file() for run in content):
        return [_of_run(Path(r), {"detectors": _by_base_name(v)}) for r, v in content.items()]
    print(f"{path}: nothing was measured", file=sys.stderr)
    return []


def _of_metrics(model: dict[str, Any]) -> dict[str, Any]:
    """Return the values of one model in `metrics.json`, whose last parts can be missing."""
    scores = model.get("ood", {}).items()
    ood = {kind: {n: d["auroc"] for n, d in sets.items()} for kind, sets in scores}
    return {
        "accuracy": _get(model, "classification", "accuracy"),
        "ece": _get(model, "calibration", "before", "ece"),
        "scaled ece": _get(model, "calibration", "after", "ece"),
        "auroc": _by_base_name(ood),
        "attacks": _curves(model.get("robustness", {})),
        "features": _get(model, "generation", "features"),
    }


def _of_comparison(result: dict[str, Any]) -> Result:
    """Return the values in a `result.json` of `compare.py`."""
    settings, seconds = result["settings"], result["settings"]["seconds"]
    values = {key: result[key] for key in ("accuracy", "ece")}
    values |= {"auroc": result["auroc"], "attacks": _curves(result["robustness"])}
    budget = f"{settings['recipe']['epochs']} epochs" if seconds is None else f"{seconds:g} s"
    return _make(settings, settings["data"], budget, values)


def _of_run(run: Path, values: dict[str, Any]) -> Result:
    """Return `values` of the run directory `run` with what its `config.json` says."""
    config = json.loads((run / "config.json").read_text())
    data, epochs = Path(config["data"]["dataset"]).stem, config["recipe"]["epochs"]
    return _make(config, data, f"{epochs} epochs", values)


def _make(config: dict[str, Any], data: str, budget: str, values: dict[str, Any]) -> Result:
    recipe = config["recipe"]
    only = recipe.get("objective_options", {}).get("classifies") is False
    network = recipe.get("backbone") or recipe["model"]  # likelihood models are networks themselves
    options = recipe.get("backbone_options") or recipe.get("options") or {}
    network = " ".join([network, *(f"{name}={value}" for name, value in options.items())])
    return Result(
        config.get("objective", recipe.get("model")) + " only" * only,
        f"{data}, {network}, {budget}",
        json.dumps(recipe, sort_keys=True),
        (config["seed"],),
        values,
    )


def _curves(groups: dict[str, list[Any]]) -> dict[str, dict[float, float]]:
    """Return accuracy by size, by "variant|attack|number of inputs"."""
    return {
        f"{variant}|{c['attack']}|{c['rows']}": dict(zip(c["epsilons"], c["accuracy"]))
        for variant, curves in groups.items()
        for c in curves
    }


def _get(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _by_base_name(scores: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return `scores` by set, where sets that are paths have only their last part as a name."""
    return {kind: {Path(n).name: v for n, v in sets.items()} for kind, sets in scores.items()}


def merge(results: list[Result]) -> list[Result]:
    """Return one result, with means, for all that differ only in the seed."""
    groups: dict[Any, list[Result]] = {}
    for result in results:
        key = (result.member, result.setting, result.recipe, *result.values)
        groups.setdefault(key, []).append(result)
    return [
        replace(
            group[0],
            seeds=tuple(sorted({seed for result in group for seed in result.seeds})),
            values=_mean([result.values for result in group]),
        )
        for group in groups.values()
    ]


def _mean(values: list[Any]) -> Any:
    """Return the means of numbers in nested dicts; the first of anything else."""
    if isinstance(values[0], dict):
        keys = {key: None for value in values for key in value}
        return {key: _mean([v[key] for v in values if key in v]) for key in keys}
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return sum(numbers) / len(numbers) if numbers else values[0]
