"""Recipes as text: `recipe.toml`, and `key=value` on the command line.

Not here: what a recipe sets (`recipe.py`), `config.json` (`settings.py`).

    base = "digits"              # a named recipe; without it, `backbone` is required
    epochs = 20                  # fields of `Recipe`; "none" is None
    backbone_options.width = 64

    [run]                        # optional
    dataset = "digits"
    seed = 1
"""

import dataclasses
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jem_tf.checks import check_known
from jem_tf.training import recipes
from jem_tf.training.recipe import Recipe
from jem_tf.training.settings import DataSource, RunSettings

FILE = "recipe.toml"
NONE = "none"  # TOML has no None
RUN = "run"  # the table of what is not part of the recipe
FIELDS = [field.name for field in dataclasses.fields(Recipe)]
SOURCE = [field.name for field in dataclasses.fields(DataSource)]


def write(settings: RunSettings, name: str, path: Path) -> None:
    """Write `settings` of a run on the data set `name`, so that `read` returns them."""
    source = dataclasses.asdict(settings.data or DataSource(name))
    values = dataclasses.asdict(settings.recipe)
    tables = {
        key: values.pop(key) for key, value in list(values.items()) if isinstance(value, dict)
    }
    run = {key: value for key, value in source.items() if value is not None}
    if settings.classifier is not None:
        run["from"] = settings.classifier
    tables[RUN] = {**run, "objective": settings.objective, "seed": settings.seed}
    lines = ["# `jem-tf train --recipe FILE` repeats this run.", *map(_line, values.items())]
    for table, entries in tables.items():
        lines += ["", f"[{table}]", *map(_line, entries.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(entry: tuple[str, Any]) -> str:
    """`key = value` in TOML, where strings, numbers, booleans and lists are as in JSON."""
    key, value = entry
    return f"{key} = {json.dumps(NONE if value is None else value, ensure_ascii=False)}"


def read(path: str | Path) -> RunSettings:
    """Read a TOML file; `data` is None if it names no data set."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"Cannot read the recipe {str(path)!r}: {error}") from error
    try:
        return _parse(values)
    except ValueError as error:
        raise ValueError(f"In {str(path)!r}: {error}") from error


def _parse(values: dict[str, Any]) -> RunSettings:
    run, base = values.pop(RUN, {}), values.pop("base", None)
    if base is not None:
        recipe = recipes.get(str(base))
    elif "backbone" in values:
        recipe = Recipe(str(values.get("about", "")), str(values["backbone"]))
    else:
        raise ValueError(f"Name a `base` ({', '.join(recipes.RECIPES)}) or a `backbone`.")
    for key in run:
        check_known(f"setting of [{RUN}]", key, [*SOURCE, "objective", "seed", "from"])
    if not isinstance(run.get("seed", 0), int):
        raise ValueError(f"`seed` must be an integer. Received: seed={run['seed']!r}")
    lists = {key: tuple(value) for key, value in run.items() if isinstance(value, list)}
    source = {key: value for key, value in {**run, **lists}.items() if key in SOURCE}
    data = DataSource(**source) if "dataset" in source else None
    recipe = _replace(recipe, values)
    objective, seed = run.get("objective", "joint"), run.get("seed", 0)
    return RunSettings(recipe, objective, seed, data, run.get("from"))


def change(recipe: Recipe, assignments: Iterable[str]) -> Recipe:
    """`recipe` after assignments such as "epochs=20" or "backbone_options.width=64".

    ```python
    change(recipes.get("digits"), ["epochs=20", "step_size=auto", "clip_norm=none"])
    ```
    """
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise ValueError(f"--set takes key=value, such as epochs=20. Received: {assignment!r}")
        key, _, option = key.strip().replace("-", "_").partition(".")
        value = parse_value(text.strip())
        recipe = _replace(recipe, {key: {option: value} if option else value})
    return recipe


def parse_value(text: str) -> Any:
    """The value of `text` in TOML, or `text` itself: strings need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _replace(recipe: Recipe, values: dict[str, Any]) -> Recipe:
    """`recipe` with other values; tables are merged, and arrays become tuples."""
    for key, value in values.items():
        check_known("recipe field", key, FIELDS)
        old = getattr(recipe, key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = {**old, **{k: None if v == NONE else v for k, v in value.items()}}
        changed: Any = None if value == NONE else tuple(value) if isinstance(value, list) else value
        recipe = dataclasses.replace(recipe, **{key: changed})
    return recipe
