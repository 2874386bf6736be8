"""Every objective trains through `fit`, is saved with its state, and trains on replicas."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest

from jem_tf import objectives
from jem_tf.objectives import Flow


@pytest.fixture(scope="module")
def make_with(make_model):
    """A function that makes a model with the objective of a name, small and soon in all stages."""

    def make(name):
        quick = {
            "fce": {"noise": Flow(couplings=2, width=16, steps=5)},
            "dual_adversarial": {"warmup": 1},
            "energy_discrepancy": {"samples": 4},
            "score_matching": {"weight": 1.0},  # the default, for images, delays the classes here
        }
        return make_model(objective=objectives.get(name, **quick.get(name, {})))

    return make


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.slow if name in ("joint", "factored", "fce", "nce", "igebm") else (),
        )
        for name in objectives.OBJECTIVES
    ],
)
def test_fit_learns_and_a_saved_model_has_the_state_of_its_objective(
    name, make_with, blobs, tmp_path
):
    x, y = blobs
    model = make_with(name)
    options = {"batch_size": 50, "epochs": 8, "validation_data": blobs, "verbose": 0}
    logs = model.fit(x, y, **options).history
    assert all(np.isfinite(values).all() for values in logs.values())
    assert {"loss", "val_loss", "classification_loss"} <= logs.keys()
    if name not in ("igebm", "factored"):  # which do not learn p(y | x)
        assert logs["val_accuracy"][-1] > 0.8  # of three classes
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(copy.predict(x, verbose=0), model.predict(x, verbose=0))
    arrays, expected = copy.objective.arrays(), model.objective.arrays()
    assert arrays.keys() == expected.keys()
    for key in arrays:
        np.testing.assert_array_equal(arrays[key], expected[key])
    assert np.isfinite(copy.sample(4, 1, steps=5, seed=0)).all()
    copy.compile("adam", run_eagerly=True)
    assert np.isfinite(copy.fit(x, y, batch_size=300, verbose=0).history["loss"]).all()


@pytest.mark.parametrize(
    "name",
    [
        "hdge",
        "supcon",
        "nce",
        "dual_adversarial",
        "score_matching",
        "energy_discrepancy",
        "factored",
    ],
)
def test_some_rows_may_have_no_label(name, make_with, blobs):
    x, y = blobs
    model = make_with(name)
    model.compile("adam", run_eagerly=True)
    logs = model.fit(x, np.where(np.arange(300) % 3, -1, y), batch_size=150, verbose=0).history
    assert np.isfinite(logs["loss"]).all()
    assert all(np.isfinite(logs[term]).all() for term in objectives.OBJECTIVES[name].logged)


@pytest.mark.parametrize(
    "name",
    [
        "hdge",
        "score_matching",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("supcon", "fce", "dual_adversarial", "factored", "energy_discrepancy")
        ),
    ],
)
def test_replicas_train(name, make_with, blobs, mirrored):
    with mirrored.scope():
        model = make_with(name)
    logs = model.fit(*blobs, batch_size=100, verbose=0).history
    assert np.isfinite(logs["loss"]).all()


def test_errors_quote_unknown_objectives():
    with pytest.raises(ValueError, match="Did you mean 'joint'"):
        objectives.get("jiont")
    with pytest.raises(TypeError, match="Received: 3"):
        objectives.get(3)


@pytest.mark.slow
def test_the_example_in_contributing_runs_and_learns_small_energies():
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names = {}
    exec(code, names)
    model = names["model"]
    x = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    before = np.square(model.energy(x)).mean()
    logs = model.fit(x, np.zeros(64, int), epochs=40, verbose=0).history
    assert logs["squares"][-1] < 0.1 * before
