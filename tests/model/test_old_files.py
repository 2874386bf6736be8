"""Files saved by version 0.1 load, answer as they did, and can be trained on.

`files/version_0_1.keras` was saved by version 0.1 after two epochs with the objective `joint`, a
`GaussianMixture` start, the schedule `Warmup(CosineDecay)` and a `DivergenceGuard`, which wraps the
schedule in `Cooled`. `files/version_0_1.npz` holds its answers.
"""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf._tf.private import learning_rate
from jem_tf.callbacks.schedules import Cooled, Warmup

FILE = Path(__file__).parent / "files" / "version_0_1.keras"


@pytest.fixture(scope="module")
def model():
    return keras.saving.load_model(FILE)


@pytest.fixture(scope="module")
def answers():
    return np.load(FILE.with_suffix(".npz"))


def test_answers_are_those_of_version_0_1(model, answers):
    x = answers["x"]
    np.testing.assert_allclose(model.energy(x), answers["energy"], atol=1e-6)
    np.testing.assert_allclose(model.ood_score(x, "gradient_norm"), answers["score"], atol=1e-6)
    np.testing.assert_allclose(model.sample(4, steps=5, seed=2), answers["samples"], atol=1e-5)
    np.testing.assert_allclose(model.refine(x[:4], steps=3, seed=1), answers["refined"], atol=1e-5)


def test_range_chains_and_schedule_are_there(model, answers):
    low, high = model.input_range.numpy()
    np.testing.assert_array_equal(low, answers["x"].min(0))
    np.testing.assert_array_equal(high, answers["x"].max(0))
    assert model.start.input_range is model.input_range
    assert model.stored_chains().shape[1:] == (4,)
    schedule = learning_rate(model.optimizer)
    assert isinstance(schedule, Cooled) and isinstance(schedule.schedule, Warmup)


def test_training_continues(model, answers):
    step = model.progress.number("step")
    x = answers["x"]
    model.fit(x, np.arange(len(x)) % 3, epochs=1, batch_size=16, verbose=0)
    assert model.progress.number("step") == step + len(x) // 16


@pytest.mark.slow
def test_a_fresh_process_loads_it_in_either_order():
    code = f"import keras, jem_tf; print(keras.saving.load_model({str(FILE)!r}).num_classes)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["3"], result.stderr


@pytest.mark.slow
def test_what_every_objective_and_schedule_saves_loads_in_a_fresh_process(tmp_path, make_model):
    """All objectives with their defaults, and schedules with warm-up and cooling."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 2)).astype(np.float32), np.arange(32) % 3
    flow = jem_tf.objectives.Flow(couplings=2, width=4, steps=2)
    objectives = {
        **{name: name for name in jem_tf.objectives.OBJECTIVES},
        "nce": jem_tf.objectives.NCE(flow),
        "fce": jem_tf.objectives.FCE(jem_tf.objectives.Flow(couplings=2, width=4, steps=2)),
        "hdge": jem_tf.objectives.HDGE(0.5),
    }
    for name, objective in objectives.items():
        rate = Cooled(Warmup(keras.optimizers.schedules.CosineDecay(1e-2, 10), 2), 0.5)
        model = make_model(objective=objective, optimizer=keras.optimizers.Adam(rate))
        model.adapt(x, y)
        with model.distribute_strategy.scope():
            model.objective.prepare(model, _summary(x, y))
        model.optimizer.build(model.trainable_variables)
        model.save(tmp_path / f"{name}.keras")
    code = (
        "import sys, pathlib, keras, jem_tf\n"
        "for file in sorted(pathlib.Path(sys.argv[1]).glob('*.keras')):\n"
        "    model = keras.saving.load_model(file)\n"
        "    print(file.stem, type(model.objective).__name__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert sorted(line.split()[0] for line in result.stdout.splitlines()) == sorted(objectives), (
        result.stderr
    )


def _summary(x, y):
    from jem_tf.data import inputs

    return inputs.summarise(inputs.batches_of(x, y, 16), 3)
