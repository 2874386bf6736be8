"""The replay buffer: what is drawn, what is written back, and how large it is."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf import ReplayBuffer, Uniform
from jem_tf.sampling.replay import capacity_for, proportional_labels

SEED = tf.constant([1, 2])


@pytest.fixture
def start():
    start = Uniform()
    start.adapt(np.array([[-1.0, -1.0], [1.0, 1.0]], np.float32))
    return start


def filled_buffer(start, batch=8, steps=None, classes=3, **options):
    buffer = ReplayBuffer(**options)
    buffer.initialise(start, SEED, batch, steps, np.full(classes, 1 / classes))
    return buffer


def test_chains_are_written_back_to_their_slots(start):
    buffer = filled_buffer(start, capacity=20, reinit_probability=0.0)
    before = buffer.arrays()["chains"][0]
    draw = buffer.draw(8, start, SEED)
    np.testing.assert_array_equal(draw.x, before[draw.slots])
    buffer.write(draw, draw.x + 5.0, steps=3)
    after = buffer.arrays()
    drawn = np.isin(np.arange(20), draw.slots)
    np.testing.assert_allclose(after["chains"][0][drawn], before[drawn] + 5.0)
    np.testing.assert_array_equal(after["chains"][0][~drawn], before[~drawn])
    np.testing.assert_array_equal(after["age"][0], np.where(drawn, 3.0, 0.0))


def test_slots_of_a_draw_differ_and_are_drawn_equally_often(start):
    buffer = filled_buffer(start, capacity=20)
    draw = tf.function(lambda key: buffer.draw(8, start, tf.stack([key, 0])).slots)
    slots = np.array([draw(key) for key in tf.range(1000)])
    assert all(len(set(row)) == 8 for row in slots)
    counts = np.bincount(slots.ravel(), minlength=20)
    assert np.abs(counts - 400).max() < 80  # standard deviation 15.5


def test_the_share_of_restarted_chains_is_the_probability_and_their_age_is_zero(start):
    buffer = filled_buffer(start, batch=5000, capacity=5000, reinit_probability=0.2)
    old = buffer.arrays()["chains"][0]
    buffer.assign(age=np.full((1, 5000), 7.0, np.float32))
    draw = buffer.draw(5000, start, SEED)
    restarted = (draw.x.numpy() != old[draw.slots]).any(1)
    assert abs(restarted.mean() - 0.2) < 0.03  # five standard errors
    np.testing.assert_array_equal(draw.age, np.where(restarted, 0.0, 7.0))


def test_non_finite_chains_are_restarted(start):
    buffer = filled_buffer(start, capacity=8, reinit_probability=0.0)
    chains = buffer.arrays()["chains"]
    chains[0, ::2] = [[np.nan, 0.0], [np.inf, 0.0], [0.0, np.nan], [-np.inf, 1.0]]
    buffer.assign(chains=chains, age=np.ones((1, 8), np.float32))
    draw = buffer.draw(8, start, SEED)
    assert np.isfinite(draw.x).all() and (np.abs(draw.x) <= 1.0).all()
    np.testing.assert_array_equal(draw.age, draw.slots.numpy() % 2)  # the others keep their age


def test_classes_have_equal_shares_of_the_slots(start):
    buffer = filled_buffer(start, capacity=12, classes=3, per_class=True)
    np.testing.assert_array_equal(np.bincount(buffer.arrays()["labels"][0]), [4, 4, 4])
    draw = buffer.draw(12, start, SEED)
    np.testing.assert_array_equal(draw.labels, draw.slots.numpy() % 3)


def test_the_capacity_follows_the_budget():
    """Each slot is drawn about 200 times; 1 500 steps of 64 need about 500 slots."""
    assert capacity_for(1_500, batch=64) == 480
    assert capacity_for(200 * 782, batch=64) == 10_000  # the paper's training, and its buffer
    assert capacity_for(10, batch=64) == 128
    assert capacity_for(None, batch=64) == 1_000


def test_saved_chains_are_distributed_over_other_replicas():
    saved = {"chains": np.arange(12.0).reshape(2, 6, 1), "age": np.ones((2, 6))}
    converted = ReplayBuffer().convert_saved(saved)
    np.testing.assert_array_equal(converted["chains"], np.arange(12.0).reshape(1, 12, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity=0"),
        ({"capacity": 2.5}, "capacity=2.5"),
        ({"reinit_probability": 1.5}, "reinit_probability=1.5"),
    ],
)
def test_errors_quote_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        ReplayBuffer(**options)


def test_a_capacity_below_the_batch_size_raises(start):
    with pytest.raises(ValueError, match="capacity=4, batch size 8"):
        filled_buffer(start, batch=8, capacity=4).check_capacity(8)


def test_settings_survive_serialisation():
    buffer = ReplayBuffer(50, 0.1, per_class=True)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(buffer))
    assert copy.get_config() == buffer.get_config()


def test_a_large_buffer_is_filled_in_chunks(start):
    """All rows differ and are uniform. The first chunk is that of a smaller buffer."""
    small, large = (filled_buffer(start, capacity=n).arrays()["chains"][0] for n in (2048, 5000))
    np.testing.assert_array_equal(small, large[:2048])
    assert large.shape == (5000, 2) and len(np.unique(large, axis=0)) == 5000
    counts = np.histogram(large, bins=10, range=(-1, 1))[0]
    assert np.abs(counts - 1000).max() < 150  # standard deviation 30


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc of Linux")
def test_filling_a_buffer_allocates_no_second_copy():
    """20 000 images of 32 x 32 x 3 are 234 MiB. A chunk that is being drawn is 24 MiB, and
    temporary arrays of its size are needed. A second copy of all chains would be 234 MiB more."""
    start, buffer = Uniform(), ReplayBuffer(20_000)
    start.adapt(np.stack([-np.ones((32, 32, 3)), np.ones((32, 32, 3))]))
    start.draw(2048, SEED)
    before = reset_peak_memory()
    buffer.initialise(start, SEED, 64, None, np.ones(10))
    assert 234 < peak_memory() - before < 234 + 120
    draw = buffer.draw(64, start, SEED)
    buffer.write(draw, draw.x, 1)
    assert peak_memory() - before < 234 + 120


def peak_memory():
    """The largest resident memory of this process since `reset_peak_memory`, in MiB."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def reset_peak_memory():
    Path("/proc/self/clear_refs").write_text("5")  # see proc(5)
    return peak_memory()


def test_labels_of_chains_have_the_shares_of_the_data(make_model, blobs):
    """Uniform labels would leave a gradient of 1/K - p(y) on the bias of each output."""
    x, y = blobs
    kept = np.flatnonzero((y != 0) | (np.arange(len(y)) % 9 == 0))  # class 0 is rare
    model = make_model(objective="factored")
    model.fit(x[kept], y[kept], batch_size=50, epochs=1, verbose=0)
    shares = np.bincount(y[kept], minlength=3) / len(kept)
    labels = model.buffer.arrays()["labels"][0]
    assert shares[0] < 0.2
    np.testing.assert_allclose(
        np.bincount(labels, minlength=3) / len(labels), shares, atol=1 / len(labels)
    )


def test_proportional_labels_are_exact_and_spread_evenly():
    assert proportional_labels(7, np.ones(3)).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert np.bincount(proportional_labels(10, np.array([0.8, 0.15, 0.05]))).tolist() == [8, 2]
    assert np.bincount(proportional_labels(1000, np.array([3, 1, 0])), minlength=3).tolist() == [
        750,
        250,
        0,
    ]
