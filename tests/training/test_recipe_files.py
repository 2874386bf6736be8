"""Recipes as text: every field by `key=value`, files that repeat a run, errors that help."""

import dataclasses
import tomllib

import pytest

from jem_tf.training import DataSource, RunSettings, recipes
from jem_tf.training.recipe_files import change, read, write

DIGITS = recipes.get("digits")


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("epochs=3", "epochs", 3),
        ("learning_rate=1e-4", "learning_rate", 1e-4),
        ("generative-weight = 1", "generative_weight", 1),
        ("clip_norm=none", "clip_norm", None),
        ("step_size=auto", "step_size", "auto"),
        ("step_size=0.5", "step_size", 0.5),
        ("drops=[10, 20]", "drops", (10, 20)),
        ("cosine=false", "cosine", False),
        ("augment=classifier", "augment", "classifier"),
        ("about=two words = fine", "about", "two words = fine"),
        ("backbone_options.width=64", "backbone_options", {"width": 64}),
    ],
)
def test_fields_are_set_by_key_and_value(text, field, value):
    assert change(DIGITS, [text]) == dataclasses.replace(DIGITS, **{field: value})


def test_later_assignments_win_and_options_are_merged():
    texts = ["backbone_options.width=8", "backbone_options.spectral=true", "epochs=3", "epochs=4"]
    recipe = change(DIGITS, texts)
    assert recipe.backbone_options == {"width": 8, "spectral": True} and recipe.epochs == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch=3", "Did you mean 'epochs'"),
        ("epochs", "key=value.*Received: 'epochs'"),
        ("epochs=many", "`epochs` must be of type int. Received: epochs='many'"),
        ("epochs=1.5", "epochs=1.5"),
        ("epochs=true", "epochs=True"),
        ("epochs=0", "positive integer.*epochs=0"),
        ("learning_rate=-1", "positive number.*learning_rate=-1"),
        ("drops=[1.5]", "drops"),
        ("backbone=convnett", "Did you mean 'convnet'"),
        ("backbone_options.widht=3", "Did you mean 'width'"),
    ],
)
def test_errors_say_what_is_accepted(text, message):
    with pytest.raises(ValueError, match=message):
        change(DIGITS, [text])


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_recipe_survives_toml(name, tmp_path):
    settings = RunSettings(recipes.get(name), "factored", 3, DataSource("cifar10", "/tfds", 32))
    write(settings, "ignored", tmp_path / "recipe.toml")
    assert read(tmp_path / "recipe.toml") == settings


def test_a_file_by_hand_needs_only_what_it_changes(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('base = "digits"\nepochs = 5\nema = "none"\nbackbone_options.width = 8\n')
    expected = dataclasses.replace(DIGITS, epochs=5, ema=None, backbone_options={"width": 8})
    assert read(file) == RunSettings(expected)
    file.write_text('backbone = "mlp"\n[run]\nseed = 2')
    assert read(file) == RunSettings(recipes.Recipe("", "mlp"), seed=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("epochs = 3", "Name a `base`.*or a `backbone`"),
        ('base = "digitz"', "Did you mean 'digits'"),
        ('base = "digits"\nepohcs = 3', "mine.toml.*Did you mean 'epochs'"),
        ('base = "digits"\n[run]\nsede = 3', "Did you mean 'seed'"),
        ('base = "digits"\n[run]\nseed = "x"', "`seed` must be an integer"),
        ('base = "digits"\n[run]\nobjective = "jiont"', "Did you mean 'joint'"),
        ("epochs: 3", "Cannot read the recipe.*mine.toml"),
    ],
)
def test_errors_of_files_name_the_file(content, message, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(content)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        read(file)


def test_measured_recipes_exist_and_values_are_plain_toml(tmp_path):
    assert set(recipes.MEASURED) <= set(recipes.RECIPES)
    write(RunSettings(DIGITS), "digits", tmp_path / "recipe.toml")
    values = tomllib.loads((tmp_path / "recipe.toml").read_text())
    assert values["run"] == {"dataset": "digits", "objective": "joint", "seed": 0}


def test_options_without_a_value_and_paths_with_emoji_survive_toml(tmp_path):
    recipe = change(recipes.get("cifar10"), ["backbone_options.norm=none"])
    assert recipe.backbone_options["norm"] is None
    settings = RunSettings(recipe, data=DataSource("photos 😀/é"))
    write(settings, "photos", tmp_path / "recipe.toml")
    assert read(tmp_path / "recipe.toml") == settings
