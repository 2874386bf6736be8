"""`train`: a run directory with all its files, resumed and overwritten only as requested."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

import jem_tf
from jem_tf import data
from jem_tf.training import DataSource, RunSettings, recipes, train
from jem_tf.training import run as module

RECIPE = dataclasses.replace(recipes.get("image"), epochs=2, batch_size=16, steps=2)


@pytest.fixture
def dataset(small):
    return data.load(small)


def test_a_run_is_complete(trained):
    config = json.loads((trained / "config.json").read_text())
    assert config["recipe"]["epochs"] == 2 and config["objective"] == "joint"
    assert config["rows"] == 345 and config["class_names"] == ["0", "1"]
    with (trained / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 and {"loss", "val_accuracy", "step_size", "chain_age"} <= set(rows[0])
    with Image.open(trained / "samples.png") as picture:
        assert picture.size[0] > 100
    assert len(list((trained / "chains").iterdir())) == 2
    assert json.loads((trained / "result.json").read_text())["training_seconds"] > 0
    model = jem_tf.load(trained)
    assert model.sample(2, steps=1).shape == (2, 4, 4, 1)
    assert model.progress.number("step") == 44


def test_a_finished_run_is_loaded_and_other_settings_raise(run, dataset, small):
    source = DataSource(small)
    settings = RunSettings(RECIPE, data=source)
    model = train(dataset, settings, run, resume=True, verbose=False)
    assert model.progress.number("step") == 44  # loaded, and not trained
    longer = dataclasses.replace(settings, recipe=dataclasses.replace(RECIPE, epochs=3))
    with pytest.raises(ValueError, match="recipe epochs was 2 and is 3"):
        train(dataset, longer, run, resume=True)
    with pytest.raises(ValueError, match="holds another run"):
        train(dataset, settings, run)


def test_data_without_training_rows_raises_before_anything_is_overwritten(run, dataset):
    empty = dataclasses.replace(dataset, train=dataset.train.take(0))
    before = (run / "model.keras").read_bytes()
    with pytest.raises(ValueError, match="data set is empty"):
        train(empty, RunSettings(RECIPE), run, overwrite=True)
    assert (run / "model.keras").read_bytes() == before


def test_a_plain_classifier_has_no_samples(tmp_path, dataset):
    """Its chains would take a minute on colour images, and show nothing."""
    recipe = dataclasses.replace(RECIPE, epochs=1)
    train(dataset, RunSettings(recipe, "cross_entropy"), tmp_path / "run", verbose=False)
    assert (tmp_path / "run" / "model.keras").is_file()
    assert not (tmp_path / "run" / "samples.png").exists()


def test_vectors_have_no_pictures(tmp_path, capsys):
    """A plain classifier on vectors: no chains, no samples, no guard; a line for each epoch."""
    x = np.random.default_rng(0).normal(size=(50, 3))
    np.savez(tmp_path / "table.npz", x=x, y=np.arange(50) % 2)
    recipe = recipes.Recipe("", "mlp", {"units": 8, "depth": 1}, epochs=2, batch_size=36)
    settings = RunSettings(recipe, "cross_entropy")
    out = tmp_path / "run"
    train(data.load(str(tmp_path / "table.npz")), settings, out)
    names = {path.name for path in out.iterdir()}
    files = {"config.json", "recipe.toml", "log.csv", "result.json", "model.keras", "checkpoints"}
    assert names == files
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].split()[0] == "epoch" and "E(data)" not in lines[0]


def test_workers_with_other_settings_are_named():
    config = RunSettings(RECIPE).to_config("small", ("0",))
    other = {**config, "seed": 1}
    module._check_agreement([config, config])
    with pytest.raises(ValueError, match=r"Worker 2 has other settings.*seed was 0 and is 1"):
        module._check_agreement([config, config, other])
