"""The settings of a run, from the command line to `config.json` and back.

Not here: what a recipe sets (`recipe.py`).
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jem_tf.checks import check_known
from jem_tf.data import Dataset, load
from jem_tf.objectives import OBJECTIVES
from jem_tf.training.recipe import Recipe
from jem_tf.version import VERSION

ADDED_FIELDS: dict[str, Any] = {  # since version 0.1, and their defaults
    "objective_options": {},
    "chain_dtype": "auto",
    "start_options": {},
    "ramp": 0,
    "chain_ratio": 1.0,
    "radius": 0.0,
    "muon": False,
    "frozen_statistics": False,
}
REMOVED_FIELDS = {"reuse": 1, "sharpness": 0.0}  # of recipes up to version 0.1, and their defaults


@dataclass(frozen=True)
class DataSource:
    """What `jem_tf.data.load` needs to load a data set again."""

    dataset: str
    data_dir: str | None = None
    image_size: int | None = None
    pixel_range: tuple[float, ...] | None = None  # black and white; None: as they are loaded
    label: str | None = None  # a column of a table
    columns: tuple[str, ...] | None = None  # inputs of a table; None: all but the label

    def load(self, strict: bool = False) -> Dataset:
        data = load(
            self.dataset,
            self.data_dir,
            self.image_size,
            label=self.label,
            columns=self.columns,
            strict=strict,
        )
        return data if self.pixel_range is None else data.with_pixels(*self.pixel_range)


@dataclass(frozen=True)
class RunSettings:
    """Everything that defines a run.

    ```python
    settings = RunSettings(recipes.get("digits"), objective="joint", seed=1)
    train(data.load("digits"), settings, "runs/digits")
    ```
    """

    recipe: Recipe
    objective: str = "joint"
    seed: int = 0
    data: DataSource | None = None  # None: the data set has the name of the `Dataset`
    classifier: str | None = None  # path of the trained classifier that the run starts from

    def __post_init__(self) -> None:
        check_known("objective", self.objective, OBJECTIVES)

    def to_config(
        self, name: str, class_names: tuple[str, ...], rows: int | None = None
    ) -> dict[str, Any]:
        """The content of `config.json` for a run on the data set `name`, as plain JSON values."""
        config = {
            "version": VERSION,
            "data": dataclasses.asdict(self.data or DataSource(name)),
            **({} if rows is None else {"rows": rows}),
            "class_names": list(class_names),
            "objective": self.objective,
            "seed": self.seed,
            **({} if self.classifier is None else {"from": self.classifier}),
            "recipe": dataclasses.asdict(self.recipe),
        }
        return json.loads(json.dumps(config))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RunSettings":
        """The settings in the content of a `config.json`."""
        config = upgrade_config(config)
        recipe = {**config["recipe"], "drops": tuple(config["recipe"]["drops"])}
        source = DataSource(**config["data"])
        if source.pixel_range is not None:
            source = dataclasses.replace(source, pixel_range=tuple(source.pixel_range))
        start = config.get("from")
        return cls(Recipe(**recipe), config["objective"], config["seed"], source, start)

    @classmethod
    def read(cls, run: str | Path) -> "RunSettings":
        """The settings of the run directory `run`."""
        file = Path(run) / "config.json"
        if not file.is_file():
            raise ValueError(f"{str(run)!r} is not a run directory: it has no config.json.")
        try:
            return cls.from_config(json.loads(file.read_text()))
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{str(file)!r} is not the settings of a run: {error!r}") from error


def upgrade_config(config: dict[str, Any]) -> dict[str, Any]:
    """`config` with today's recipe fields; removed ones must have had their defaults. Samplers of
    version 0.1 have no temperature, and a tuned size beside fixed noise; `SGLD` reads them too."""
    fields = config["recipe"].items()
    recipe = {name: value for name, value in fields if REMOVED_FIELDS.get(name, ...) != value}
    if "temperature" not in recipe:
        recipe["temperature"] = 1.0
        recipe["step_size"] = 1.0 if recipe["step_size"] == "auto" else recipe["step_size"]
    return {**config, "recipe": {**ADDED_FIELDS, **recipe}}


def describe_changes(old: Any, new: Any, name: str = "") -> list[str]:
    """How two configs differ, in words; the directory of the data does not count."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [key for key in {**old, **new} if key != "data_dir"]
        return [
            change
            for key in keys
            for change in describe_changes(old.get(key), new.get(key), f"{name} {key}".strip())
        ]
    return [] if old == new else [f"{name} was {old!r} and is {new!r}"]
