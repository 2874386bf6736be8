"""`DivergenceGuard`: diverging runs recover by themselves, and healthy runs are not changed."""

import json
import time

import keras
import numpy as np
import pytest
from helpers import assert_same_weights

import jem_tf
from jem_tf import data
from jem_tf._tf.private import learning_rate
from jem_tf.callbacks import DivergenceGuard, Resume
from jem_tf.callbacks.schedules import Cooled
from jem_tf.model.health import VITALS
from jem_tf.training import recipes

FIT = {"batch_size": 50, "verbose": 0}


class AtStep(keras.callbacks.Callback):
    """Calls `change(model)` after a step."""

    def __init__(self, step, change):
        super().__init__()
        self.step, self.change, self.count = step, change, 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        if self.count == self.step:
            self.change(self.model)


def explode(model):
    for weight in model.trainable_weights:
        weight.assign(100.0 * weight)


def current_rate(model):
    return float(model.optimizer.learning_rate)


def test_non_finite_chains_are_restarted_without_a_rollback(make_model, blobs):
    def poison(model):
        chains = model.buffer.arrays()["chains"]
        chains[:, ::2] = np.nan
        model.buffer.assign(chains=chains)

    model = make_model(buffer=jem_tf.ReplayBuffer(60))
    guard = DivergenceGuard(every=5)
    model.fit(*blobs, **FIT, epochs=12, callbacks=[AtStep(40, poison), guard])
    assert np.isfinite(model.stored_chains()).all()
    assert all(np.isfinite(w).all() for w in model.get_weights())
    assert not [event for event in guard.events if event["event"] == "divergence"]


@pytest.mark.parametrize(
    "scheduled",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["constant", "schedule"],
)
def test_an_explosion_is_rolled_back(scheduled, make_model, blobs, tmp_path):
    rate = keras.optimizers.schedules.ExponentialDecay(1e-2, 1000, 0.5) if scheduled else 1e-2
    log = tmp_path / "events.jsonl"
    guard = DivergenceGuard(every=5, log=log)
    model = make_model(optimizer=keras.optimizers.Adam(rate))
    model.fit(*blobs, **FIT, epochs=30, callbacks=[AtStep(90, explode), guard])
    (event,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert event["event"] == "divergence" and 90 < event["step"] <= 100
    assert "rolled back, learning rate x 0.1, recovering to x 0.5" in event["message"]
    assert set(event["vitals"]) >= {"relative_gap", "trusted", "cross_entropy"}
    assert (model.predict(blobs[0], verbose=0).argmax(1) == blobs[1]).mean() > 0.9
    assert max(np.abs(w).max() for w in model.get_weights()) < 10
    expected = 0.5 * (rate(180) if scheduled else rate)  # recovered to half of its former value
    assert current_rate(model) == pytest.approx(float(expected), rel=0.05)
    assert model.history.history["rollbacks"][-1] == 1
    if scheduled:
        check_saving_of_a_cooled_schedule(model, blobs, tmp_path / "model.keras")


def check_saving_of_a_cooled_schedule(model, blobs, path):
    assert isinstance(learning_rate(model.optimizer), Cooled)
    model.save(path)
    copy = keras.saving.load_model(path)
    uncooled = 2.0 * current_rate(model)
    assert current_rate(copy) == pytest.approx(uncooled)  # the factor is known to the guard only
    copy.fit(*blobs, **FIT, callbacks=[DivergenceGuard()])
    assert learning_rate(copy.optimizer).factor is copy.progress["cooling"]
    assert current_rate(copy) == pytest.approx(0.5 * uncooled, rel=0.01)


@pytest.mark.parametrize(("ramp", "rollbacks"), [(0, 1), (1000, 0)])
def test_the_density_of_a_classifier_is_not_judged_before_it_counts(
    ramp, rollbacks, make_model, blobs
):
    def make_samples_likely(model):
        vitals = dict.fromkeys(VITALS, 1.0) | {"gap": 90.0, "relative_gap": 90.0}
        model.progress.assign(vitals=np.asarray(list(vitals.values()), np.float32))

    model = make_model(objective=jem_tf.objectives.Joint(ramp=ramp))
    guard = DivergenceGuard(every=1, patience=1)
    model.fit(*blobs, **FIT, epochs=2, callbacks=[AtStep(3, make_samples_likely), guard])
    assert len([e for e in guard.events if "far more likely" in e["message"]]) == rollbacks


def test_repeated_divergence_stops_in_an_earlier_state(make_model, blobs, capsys):
    class Explode(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations > 40:
                explode(self.model)

    guard = DivergenceGuard(every=5, attempts=3)
    model = make_model()
    history = model.fit(*blobs, **FIT, epochs=99, callbacks=[Explode(), guard])
    assert len(history.history["loss"]) < 30
    assert [event["event"] for event in guard.events].count("divergence") == 3
    assert "stopped, in an earlier state" in capsys.readouterr().out
    assert max(np.abs(w).max() for w in model.get_weights()) < 10


@pytest.mark.slow
def test_a_resumed_run_remembers_its_rollbacks(make_model, blobs, tmp_path):
    def fit(model, epochs, *callbacks):
        guard = DivergenceGuard(every=5)
        model.fit(*blobs, **FIT, epochs=epochs, callbacks=[*callbacks, Resume(tmp_path), guard])
        return guard

    model = make_model()
    fit(model, 17, AtStep(90, explode))
    cooled = current_rate(model)
    assert cooled < 0.5e-2
    resumed = make_model()
    assert fit(resumed, 18).events == []
    assert resumed.progress.number("rollbacks") == 1
    assert cooled < current_rate(resumed) <= 0.5e-2 + 1e-9


@pytest.mark.slow
def test_a_step_size_that_is_too_large_is_lowered(make_model, blobs):
    """It stays lower: a rollback does not restore it."""
    guard = DivergenceGuard(every=5)
    model = make_model(
        sampler=jem_tf.SGLD(3, step_size=1e4, noise=0.01),
        objective=jem_tf.objectives.Joint(lag=1e9),
    )
    model.adapt(blobs[0])
    model.fit(*blobs, **FIT, epochs=60, callbacks=[guard])
    factors = [event["message"].partition("steps x ")[2] for event in guard.events]
    assert 0 < float(factors[0]) < 1e-2
    product = np.prod([float(factor) for factor in factors if factor])
    assert model.progress.number("step_size") == pytest.approx(product, rel=0.05 * len(factors))
    assert len(factors) < guard.attempts and model.health.vitals()["extent"] < 3


def test_half_precision_leaves_non_finite_updates_to_keras(make_model, blobs):
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = make_model()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    model.fit(*blobs, **FIT, epochs=2, callbacks=[DivergenceGuard(every=3)])
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_errors_quote_wrong_arguments_and_models(blobs):
    with pytest.raises(ValueError, match="every=0"):
        DivergenceGuard(every=0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
    with pytest.raises(TypeError, match="watches a JEM"):
        model.fit(*blobs, verbose=0, callbacks=[DivergenceGuard()])


@pytest.mark.slow
def test_a_healthy_run_is_not_changed(make_model, blobs):
    def train(*callbacks):
        keras.utils.set_random_seed(3)
        model = make_model()
        model.fit(*blobs, **FIT, epochs=30, shuffle=False, callbacks=callbacks)
        return model

    guard = DivergenceGuard(every=5)
    assert_same_weights(train(guard), train())
    assert guard.events == []


@pytest.mark.slow
def test_each_replica_is_rolled_back_to_its_own_chains(mirrored, make_model, blobs):
    with mirrored.scope():
        model = make_model()
    guard = DivergenceGuard(every=5)
    model.fit(*blobs, **FIT, epochs=20, callbacks=[AtStep(90, explode), guard])
    assert [event["event"] for event in guard.events] == ["divergence"]
    for weight in model.weights:
        first, second = weight.value.values
        np.testing.assert_array_equal(first, second)
    chains = model.buffer.arrays()["chains"]
    assert len(chains) == 2 and not np.array_equal(*chains)
    assert model.evaluate(*blobs, verbose=0, return_dict=True)["accuracy"] > 0.9


@pytest.mark.slow
def test_the_guard_takes_less_than_3_percent_of_the_time():
    digits, recipe = data.load("digits"), recipes.get("digits")
    model = recipe.model(digits, 0)
    model.compile(recipe.optimizer(21))
    guard_seconds, epoch_seconds = [], []

    class TimedGuard(DivergenceGuard):
        def on_train_batch_end(self, batch, logs=None):
            begin = time.perf_counter()
            super().on_train_batch_end(batch, logs)
            guard_seconds.append(time.perf_counter() - begin)

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.begin = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            epoch_seconds.append(time.perf_counter() - self.begin)

    rows = digits.epochs(recipe.batch_size, 0)
    options = {"steps_per_epoch": 205, "shuffle": False, "verbose": 0, "epochs": 2}
    model.fit(rows, **options, callbacks=[TimedGuard(), Clock()])
    assert len(guard_seconds) == 410  # two snapshots and eight readings; the first epoch compiles
    assert sum(guard_seconds[205:]) < 0.03 * epoch_seconds[1]
