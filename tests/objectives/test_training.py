"""Every objective trains through `fit`, is saved whole, resumes, and says what it cannot do."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf import cli, objectives
from jem_tf.objectives import FCE, HDGE, NCE, Factored, Flow
from jem_tf.training import run_directory as runs


def made(name, make_model, **options):
    quick = {"noise": Flow(couplings=2, width=16, steps=20)} if name == "fce" else {}
    return make_model(objective=objectives.get(name, **quick), **options)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("joint", "factored", "fce") else ())
        for name in objectives.OBJECTIVES
    ],
)
def test_fit_learns_and_a_saved_model_comes_back_whole(name, make_model, blobs, tmp_path):
    x, y = blobs
    model = made(name, make_model)
    model.compile(keras.optimizers.Adam(1e-2), metrics=["accuracy"])
    logs = model.fit(x, y, batch_size=50, epochs=8, validation_data=(x, y), verbose=0).history
    assert all(np.isfinite(values).all() for values in logs.values())
    assert {"loss", "val_loss", "classification_loss"} <= logs.keys()
    if name not in ("igebm", "factored"):  # which do not learn p(y | x)
        assert logs["val_accuracy"][-1] > 0.8  # of three classes
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(copy.predict(x, verbose=0), model.predict(x, verbose=0))
    one, other = model.objective.arrays(), copy.objective.arrays()
    assert one.keys() == other.keys()
    for key in one:
        np.testing.assert_array_equal(one[key], other[key])
    assert np.isfinite(copy.sample(4, 1, steps=5, seed=0)).all()
    copy.compile(keras.optimizers.Adam(1e-2))
    copy.fit(x, y, batch_size=50, verbose=0)


@pytest.mark.parametrize("name", ["hdge", "nce", "dual_adversarial", "factored"])
def test_rows_without_labels_teach_the_density_only(name, make_model, blobs):
    x, y = blobs
    some = np.where(np.arange(300) % 3, -1, y)
    model = made(name, make_model)
    logs = model.fit(x, some, batch_size=50, epochs=2, verbose=0).history
    assert np.isfinite(logs["loss"]).all()


@pytest.mark.parametrize("name", ["hdge", "fce", "factored"])
def test_replicas_train(name, make_model, blobs, mirrored):
    with mirrored.scope():
        model = made(name, make_model)
    logs = model.fit(*blobs, batch_size=50, epochs=2, verbose=0).history
    assert np.isfinite(logs["loss"]).all()


def test_what_cannot_be_is_named(make_model, blobs):
    x, y = blobs
    nothing = np.full(300, -1)
    for name in ("factored", "cross_entropy"):
        with pytest.raises(ValueError, match=r"learns from labels. Received: 300 rows"):
            made(name, make_model).fit(x, nothing, verbose=0)
    with pytest.raises(ValueError, match=r"100 or more. Received: queue=20"):
        make_model(objective=HDGE(queue=20)).fit(x, y, batch_size=100, verbose=0)
    with pytest.raises(ValueError, match="whose density is known"):
        NCE(noise=jem_tf.Uniform())
    with pytest.raises(ValueError, match="must be a Flow"):
        FCE(noise=jem_tf.GaussianMixture(floor=0.1))
    with pytest.raises(ValueError, match="chains of classes"):
        make_model(objective=Factored(), buffer=jem_tf.ReplayBuffer(64))
    with pytest.raises(ValueError, match="Did you mean 'joint'"):
        make_model(objective="jiont")
    with pytest.raises(TypeError, match="Received: 3"):
        make_model(objective=3)
    for wrong in ({"weight": -1}, {"radius": -1}, {"step_size": 0}, {"steps": 0}):
        ((key, value),) = wrong.items()
        with pytest.raises(ValueError, match=f"{key}={value}"):
            objectives.DualAdversarial(**wrong)


@pytest.mark.parametrize("name", ["hdge", "cross_entropy"])
def test_the_command_trains_each(name, small, tmp_path):
    out = tmp_path / "run"
    flags = ["--objective", name, "--epochs", "2", "--out", str(out)]
    assert cli.main(["train", small, *flags]) == 0
    assert runs.read_json(out / "config.json")["objective"] == name
    model = runs.load(out)
    assert type(model.objective) is objectives.OBJECTIVES[name]


def test_the_command_knows_every_objective():
    assert tuple(objectives.OBJECTIVES) == cli.OBJECTIVES


def test_the_example_of_the_guide_for_contributors_runs():
    """And learns what it says: energies become small."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names = {}
    exec(code, names)
    model = names["model"]
    x = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    before = np.square(model.energy(x)).mean()
    logs = model.fit(x, np.zeros(64, int), epochs=20, verbose=0).history
    assert logs["squares"][-1] < 0.1 * before
