"""Vital signs of a training against NumPy, and updates that are always finite."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf._tf.state import State
from jem_tf.model.health import VITALS, Health
from jem_tf.sampling import InputRange


def test_vitals_are_those_of_a_step(make_model, blobs):
    model = make_model(input_noise=0.0, buffer=jem_tf.ReplayBuffer(300))
    model.compile("adam", run_eagerly=True)
    x, y = blobs
    model.adapt(x)
    before = model.get_weights()
    logs = model.fit(x, y, batch_size=300, verbose=0, shuffle=False).history
    chains = model.stored_chains()
    model.set_weights(before)
    f_data, f_samples = -model.energy(x), -model.energy(chains)
    vitals = model.health.vitals()
    behind = f_data.mean() - f_samples
    half = (x.max(0) - x.min(0)) / 2
    unit = (chains - (x.max(0) + x.min(0)) / 2) / half
    logits = model.predict(x, verbose=0).astype(np.float64)
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    dimensions = x.shape[1]
    spread = np.clip(f_data.std(), 0.05 * np.sqrt(dimensions / 2), 5.0)
    trust = np.clip(2 - behind / (4 * spread), 0, 1)
    assert logs["gap"] == pytest.approx([-behind.mean()], abs=1e-4)
    assert logs["trusted"] == pytest.approx([trust.mean()], abs=1e-4)
    assert vitals["trusted"] == pytest.approx(trust.mean(), abs=1e-4)
    assert vitals["relative_gap"] == pytest.approx(-behind.mean() / spread, abs=1e-3)
    assert vitals["extent"] == pytest.approx(np.sqrt((unit**2).mean()), rel=1e-4)
    assert vitals["cross_entropy"] == pytest.approx(-log_p[np.arange(300), y].mean(), abs=1e-4)
    model.health.reset()
    assert set(model.health.vitals().values()) == {0.0}


@pytest.fixture
def health():
    input_range = InputRange()
    input_range.adapt(np.array([[-1.0], [1.0]], np.float32))
    return Health(State(), input_range)


def test_vitals_are_means_over_the_last_50_steps_without_non_finite_values(health):
    """The mean of all values until step 50, then each value has a weight of 1 / 50."""
    values = np.random.default_rng(0).normal(size=80)
    expected = 0.0
    record = tf.function(lambda value: health.record(tf.zeros([2, 1]), trusted=value))
    for step, value in enumerate(values):
        expected += (value - expected) / min(step + 1, 50)
        record(tf.constant(value, tf.float32))
    assert health.vitals()["trusted"] == pytest.approx(expected, rel=1e-4)
    record(tf.constant(np.nan))
    assert health.vitals()["trusted"] == pytest.approx(expected, rel=1e-4)
    assert tuple(health.vitals()) == VITALS


def test_non_finite_gradients_become_zeros(health):
    optimizer = keras.optimizers.SGD()
    good, bad = tf.constant([3.0, 4.0]), tf.constant([1.0, np.inf])
    gradients, norm = health.make_finite([good, None], optimizer)
    assert float(norm) == 5.0 and gradients[1] is None
    np.testing.assert_array_equal(gradients[0], good)
    gradients, _ = health.make_finite([good, bad, None], optimizer)
    np.testing.assert_array_equal(gradients[:2], np.zeros((2, 2)))
    assert health._progress.number("skipped") == 1


def test_a_non_finite_batch_changes_nothing_but_the_count(make_model, blobs):
    """One batch in the middle holds a NaN. Training continues with the others."""
    x, y = blobs
    model = make_model()
    bad = x[:50].copy()
    bad[3, 1] = np.nan
    rows = [(x[i : i + 50], y[i : i + 50]) for i in range(0, 300, 50)] * 14
    rows[70] = (bad, y[:50])  # later than `fit` reads before training
    history = model.fit(iter(rows), steps_per_epoch=84, shuffle=False, verbose=0).history
    assert model.progress.number("skipped") == 1
    assert all(np.isfinite(w).all() for w in model.get_weights())
    assert all(np.isfinite(v).all() for v in model.optimizer.variables)
    assert all(np.isfinite(v[0]) for v in history.values())
    assert history["accuracy"][0] > 0.7
    model.buffer.assign(chains=np.full_like(model.buffer.arrays()["chains"], np.nan))
    again = [(x[i : i + 50], y[i : i + 50]) for i in range(0, 300, 50)] * 5
    history = model.fit(iter(again), steps_per_epoch=30, shuffle=False, verbose=0).history
    assert np.isfinite(history["loss"]).all()  # non-finite chains are restarted
    drawn = model.buffer.arrays()["age"][0] > 0
    assert drawn.any() and np.isfinite(model.stored_chains()[drawn]).all()
