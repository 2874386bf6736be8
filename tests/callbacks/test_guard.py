"""Trainings that fall ill heal themselves; those that do not are not touched."""

import json
import time

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf import data
from jem_tf.callbacks import DivergenceGuard, Resume
from jem_tf.callbacks.guard import Cooled
from jem_tf.training import recipes


class At(keras.callbacks.Callback):
    """Does something to the model after a step."""

    def __init__(self, step, harm):
        super().__init__()
        self.step, self.harm, self.count = step, harm, 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        if self.count == self.step:
            self.harm(self.model)


def explode(model):
    for weight in model.trainable_weights:
        weight.assign(100.0 * weight)


def rate_of(model):
    return float(model.optimizer.learning_rate)


def test_an_update_that_is_not_finite_is_not_made(make_model, blobs):
    """One batch in the middle holds a NaN: nothing is lost but that batch."""
    x, y = blobs
    model = make_model()
    bad = x[:50].copy()
    bad[3, 1] = np.nan
    rows = [(x[i : i + 50], y[i : i + 50]) for i in range(0, 300, 50)] * 14
    rows[70] = (bad, y[:50])  # later than `fit` looks ahead
    history = model.fit(iter(rows), steps_per_epoch=84, verbose=0).history
    assert model.progress.arrays()["skipped"] == 1
    assert all(np.isfinite(w).all() for w in model.get_weights())
    assert all(np.isfinite(v).all() for v in model.optimizer.variables)
    assert all(np.isfinite(v[0]) for v in history.values())
    assert history["accuracy"][0] > 0.7


def test_half_precision_leaves_such_steps_to_keras(make_model, blobs):
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = make_model()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    model.fit(*blobs, epochs=2, verbose=0, callbacks=[DivergenceGuard(every=3)])
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_chains_that_are_no_numbers_start_anew(make_model, blobs):
    def poison(model):
        arrays = model.buffer.arrays()
        arrays["chains"][:, ::2] = np.nan
        model.buffer.assign(chains=arrays["chains"])

    model = make_model()
    guard = DivergenceGuard(every=5)
    model.fit(*blobs, batch_size=50, epochs=60, verbose=0, callbacks=[At(20, poison), guard])
    assert np.isfinite(model.buffer.arrays()["chains"]).all()
    assert all(np.isfinite(w).all() for w in model.get_weights())
    assert not [event for event in guard.events if event["event"] == "divergence"]


@pytest.mark.parametrize("schedule", [False, True], ids=["constant", "schedule"])
def test_an_explosion_is_undone(schedule, make_model, blobs, tmp_path):
    rate = keras.optimizers.schedules.ExponentialDecay(1e-2, 1000, 0.5) if schedule else 1e-2
    log = tmp_path / "events.jsonl"
    guard = DivergenceGuard(every=5, log=log)
    model = make_model(optimizer=keras.optimizers.Adam(rate))
    model.fit(*blobs, batch_size=50, epochs=30, verbose=0, callbacks=[At(90, explode), guard])
    (event,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert event["event"] == "divergence" and 90 < event["step"] <= 100
    assert "learning rate x 0.1 recovering to x 0.5" in event["message"]
    assert set(event["vitals"]) >= {"gap", "trusted", "cross_entropy"}
    assert model.evaluate(*blobs, verbose=0, return_dict=True)["accuracy"] > 0.9
    assert max(np.abs(w).max() for w in model.get_weights()) < 10
    expected = 0.5 * (rate(180) if schedule else rate)  # it has recovered to half of what it was
    assert rate_of(model) == pytest.approx(float(expected), rel=0.05)
    assert model.history.history["rollbacks"][-1] == 1


def test_troubles_that_return_end_in_an_earlier_state(make_model, blobs, capsys):
    class Always(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations > 40:
                explode(self.model)

    guard = DivergenceGuard(every=5, attempts=3)
    model = make_model()
    history = model.fit(*blobs, batch_size=50, epochs=99, verbose=0, callbacks=[Always(), guard])
    assert len(history.history["loss"]) < 30
    assert [event["event"] for event in guard.events].count("divergence") == 3
    assert "stopped, in an earlier state" in capsys.readouterr().out
    assert max(np.abs(w).max() for w in model.get_weights()) < 10


@pytest.mark.slow
def test_a_healthy_training_is_not_touched(make_model, blobs):
    def train(*callbacks):
        keras.utils.set_random_seed(3)
        model = make_model()
        model.fit(*blobs, batch_size=50, epochs=30, shuffle=False, verbose=0, callbacks=callbacks)
        return model

    guard = DivergenceGuard(every=5)
    for one, other in zip(train().get_weights(), train(guard).get_weights()):
        np.testing.assert_array_equal(one, other)
    assert guard.events == []


@pytest.mark.slow
def test_replicas_are_taken_back_each_to_its_own_chains(mirrored, make_model, blobs):
    with mirrored.scope():
        model = make_model()
    guard = DivergenceGuard(every=5)
    model.fit(*blobs, batch_size=50, epochs=20, verbose=0, callbacks=[At(90, explode), guard])
    assert [event["event"] for event in guard.events] == ["divergence"]
    for weight in model.weights:
        one, other = weight.value.values
        np.testing.assert_array_equal(one, other)
    chains = model.buffer.arrays()["chains"]
    assert len(chains) == 2 and not np.array_equal(*chains)
    assert model.evaluate(*blobs, verbose=0, return_dict=True)["accuracy"] > 0.9


def test_a_resumed_training_remembers_its_troubles(make_model, blobs, tmp_path):
    def fit(model, epochs, *callbacks):
        guard = DivergenceGuard(every=5)
        options = {"batch_size": 50, "epochs": epochs, "verbose": 0}
        model.fit(*blobs, **options, callbacks=[*callbacks, Resume(tmp_path), guard])
        return guard

    model = make_model()
    fit(model, 17, At(90, explode))
    cooled = rate_of(model)
    assert cooled < 0.5e-2
    again = make_model()
    assert fit(again, 18).events == []
    assert again.progress.arrays()["rollbacks"] == 1
    assert cooled < rate_of(again) <= 0.5e-2 + 1e-9


def test_a_model_with_a_cooled_schedule_can_be_saved(make_model, blobs, tmp_path):
    schedule = keras.optimizers.schedules.ExponentialDecay(1e-2, 10, 0.5)
    model = make_model(optimizer=keras.optimizers.Adam(schedule))
    model.fit(*blobs, verbose=0, callbacks=[DivergenceGuard()])
    assert isinstance(model.optimizer._learning_rate, Cooled)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert rate_of(copy) == rate_of(model)
    copy.fit(*blobs, verbose=0, callbacks=[DivergenceGuard()])
    assert copy.optimizer._learning_rate.factor is copy.progress["cooling"]


def test_wrong_use_is_named(blobs):
    with pytest.raises(ValueError, match="every=0"):
        DivergenceGuard(every=0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
    with pytest.raises(TypeError, match="watches a JEM"):
        model.fit(*blobs, verbose=0, callbacks=[DivergenceGuard()])


@pytest.mark.slow
def test_vitals_are_what_they_say(make_model, blobs):
    """Against numpy, after one step."""
    model = make_model(input_noise=0.0, buffer=jem_tf.ReplayBuffer(300))
    x, y = blobs
    model.adapt(x)
    before = [w.numpy() for w in model.weights]
    model.fit(x, y, batch_size=300, verbose=0, shuffle=False)
    chains = model.buffer.arrays()["chains"][0]
    for weight, value in zip(model.weights, before):
        weight.assign(value)
    f_data, f_samples = -model.energy(x), -model.energy(chains)
    vitals = model.vitals()
    behind = f_data.mean() - f_samples
    half = (x.max(0) - x.min(0)) / 2
    unit = (chains - (x.max(0) + x.min(0)) / 2) / half
    logits = model.predict(x, verbose=0).astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    assert vitals["gap"] == pytest.approx(-behind.mean(), abs=1e-4)
    assert vitals["trusted"] == pytest.approx(np.clip(2 - behind / 10, 0, 1).mean(), abs=1e-5)
    assert vitals["extent"] == pytest.approx(np.sqrt((unit**2).mean()), rel=1e-4)
    assert vitals["cross_entropy"] == pytest.approx(-log_p[np.arange(300), y].mean(), abs=1e-4)


@pytest.mark.slow
def test_watching_costs_little():
    """Less than 3 % of the training time, on digits."""
    digits, recipe = data.load("digits"), recipes.get("digits")
    model = recipe.model(digits, 0)
    model.compile(recipe.optimizer(21))
    spent = []

    class Timed(DivergenceGuard):
        def on_train_batch_end(self, batch, logs=None):
            begin = time.perf_counter()
            super().on_train_batch_end(batch, logs)
            spent.append(time.perf_counter() - begin)

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.begin = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            times.append(time.perf_counter() - self.begin)

    times = []
    rows = digits.epochs(recipe.batch_size, 0)
    options = {"steps_per_epoch": 205, "shuffle": False, "verbose": 0, "epochs": 2}
    model.fit(rows, **options, callbacks=[Timed(), Clock()])
    assert len(spent) == 410  # with two snapshots and eight looks; the first half compiled
    assert sum(spent[205:]) < 0.03 * times[1]


def test_a_step_size_that_throws_chains_out_becomes_a_careful_one(make_model, blobs):
    """And stays one: what was learned about it is not taken back."""
    guard = DivergenceGuard(every=5)
    model = make_model(
        sampler=jem_tf.SGLD(3, step_size=1e4, noise=0.01),
        objective=jem_tf.objectives.Joint(lag=1e9),
    )
    model.adapt(blobs[0])
    model.fit(*blobs, batch_size=50, epochs=60, verbose=0, callbacks=[guard])
    factors = [e["message"].partition("steps x ")[2] for e in guard.events]
    assert 0 < float(factors[0]) < 1e-2
    product = np.prod([float(factor) for factor in factors if factor])
    assert model.progress.arrays()["step_size"] == pytest.approx(product, rel=0.05 * len(factors))
    assert len(factors) < guard.attempts and model.vitals()["extent"] < 3
