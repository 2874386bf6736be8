"""Settings of a run: to `config.json` and back, from version 0.1, and differences in words."""

import dataclasses
import json

import pytest

from jem_tf.training import DataSource, RunSettings, recipes
from jem_tf.training.settings import describe_changes, upgrade_config

SETTINGS = RunSettings(
    recipes.get("cifar10"), "factored", seed=3, data=DataSource("cifar10", "/tfds", 32)
)


@pytest.fixture
def config():
    return SETTINGS.to_config("cifar10", ("cat", "dog"), rows=90)


def test_settings_survive_json(config):
    assert json.loads(json.dumps(config)) == config
    assert RunSettings.from_config(config) == SETTINGS
    assert config["class_names"] == ["cat", "dog"] and config["rows"] == 90


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_recipe_survives_json(name):
    settings = RunSettings(recipes.get(name), data=DataSource("digits"))
    assert RunSettings.from_config(settings.to_config("digits", ("0",))) == settings


def test_without_a_source_the_name_of_the_data_is_written():
    config = RunSettings(recipes.get("digits")).to_config("digits", ("0",))
    assert RunSettings.from_config(config).data == DataSource("digits")
    assert "rows" not in config


def test_a_run_of_version_0_1_is_read(config, tmp_path):
    recipe = {**config["recipe"], "reuse": 1, "sharpness": 0.0}
    del recipe["objective_options"]
    old = {**config, "version": "0.1.0", "recipe": recipe}
    (tmp_path / "config.json").write_text(json.dumps(old))
    assert RunSettings.read(tmp_path) == SETTINGS
    assert upgrade_config(old)["recipe"] == config["recipe"]


@pytest.mark.parametrize("field", [{"reuse": 2}, {"sharpness": 0.05}])
def test_a_run_that_used_a_removed_setting_raises(field, config, tmp_path):
    old = {**config, "recipe": {**config["recipe"], **field}}
    (tmp_path / "config.json").write_text(json.dumps(old))
    with pytest.raises(ValueError, match=f"not the settings of a run.*{next(iter(field))}"):
        RunSettings.read(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "{}", '{"data": {}, "recipe": {"colour": 1, "drops": []}}']
)
def test_other_files_are_not_the_settings_of_a_run(content, tmp_path):
    with pytest.raises(ValueError, match=r"no config\.json"):
        RunSettings.read(tmp_path)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match="not the settings of a run"):
        RunSettings.read(tmp_path)


def test_an_unknown_objective_raises():
    with pytest.raises(ValueError, match="Did you mean 'joint'"):
        RunSettings(recipes.get("digits"), "jiont")


def test_changes_are_described_in_words(config):
    other = dataclasses.replace(
        SETTINGS,
        recipe=dataclasses.replace(SETTINGS.recipe, epochs=7),
        seed=5,
        data=DataSource("cifar10", "/elsewhere", 32),
    )
    changed = other.to_config("cifar10", ("cat", "dog"), rows=90)
    assert describe_changes(config, changed) == [
        "seed was 3 and is 5",
        "recipe epochs was 200 and is 7",
    ]
    assert describe_changes(config, config) == []
