"""The buffer: what is drawn, what is put back, how large it is."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf import ReplayBuffer, Uniform
from jem_tf.sampling.replay import capacity_for

SEED = tf.constant([1, 2])


@pytest.fixture
def start():
    start = Uniform()
    start.adapt(np.array([[-1.0, -1.0], [1.0, 1.0]], np.float32))
    return start


def filled(start, batch=8, steps=None, classes=3, **options):
    buffer = ReplayBuffer(**options)
    buffer.start_anew(start, SEED, batch, steps, classes)
    return buffer


def test_chains_go_back_to_the_slots_they_came_from(start):
    buffer = filled(start, capacity=20, reinit_probability=0.0)
    before = buffer.arrays()["chains"][0]
    draw = buffer.draw(8, start, SEED)
    np.testing.assert_array_equal(draw.x, before[draw.slots])
    buffer.write(draw, draw.x + 5.0, steps=3)
    after = buffer.arrays()
    touched = np.isin(np.arange(20), draw.slots)
    np.testing.assert_allclose(after["chains"][0][touched], before[touched] + 5.0)
    np.testing.assert_array_equal(after["chains"][0][~touched], before[~touched])
    np.testing.assert_array_equal(after["age"][0], np.where(touched, 3.0, 0.0))


def test_a_draw_never_has_the_same_slot_twice(start):
    buffer = filled(start, capacity=10)
    for key in range(50):
        slots = buffer.draw(8, start, tf.constant([key, 0])).slots.numpy()
        assert len(set(slots)) == 8


def test_slots_are_drawn_equally_often(start):
    buffer = filled(start, capacity=20)
    draws = [buffer.draw(8, start, tf.constant([key, 0])).slots for key in range(1000)]
    counts = np.bincount(np.concatenate(draws), minlength=20)
    assert np.abs(counts - 400).max() < 80  # standard deviation 15.5


def test_reinitialised_share_is_the_probability_and_starts_at_age_zero(start):
    buffer = filled(start, batch=5000, capacity=5000, reinit_probability=0.2)
    old = buffer.arrays()["chains"][0]
    buffer.assign(age=np.full((1, 5000), 7.0, np.float32))
    draw = buffer.draw(5000, start, SEED)
    anew = (draw.x.numpy() != old[draw.slots]).any(1)
    assert abs(anew.mean() - 0.2) < 0.03  # five standard errors
    np.testing.assert_array_equal(draw.age, np.where(anew, 0.0, 7.0))


def test_slots_of_classes_have_equal_shares(start):
    buffer = filled(start, capacity=12, classes=3, per_class=True)
    np.testing.assert_array_equal(np.bincount(buffer.arrays()["labels"][0]), [4, 4, 4])
    draw = buffer.draw(12, start, SEED)
    np.testing.assert_array_equal(draw.labels, draw.slots.numpy() % 3)


def test_capacity_follows_the_budget():
    """Each slot is drawn about 200 times; the prototype's 1 500 steps of 64 want about 500."""
    assert capacity_for(1_500, batch=64) == 480
    assert capacity_for(200 * 782, batch=64) == 10_000  # the paper's training, and its buffer
    assert capacity_for(10, batch=64) == 128
    assert capacity_for(None, batch=64) == 1_000


def test_a_buffer_dealt_to_other_replicas_keeps_its_chains(start):
    saved = {"chains": np.arange(12.0).reshape(2, 6, 1), "age": np.ones((2, 6))}
    dealt = ReplayBuffer().restored(saved)
    np.testing.assert_array_equal(dealt["chains"], np.arange(12.0).reshape(1, 12, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity=0"),
        ({"capacity": 2.5}, "capacity=2.5"),
        ({"reinit_probability": 1.5}, "reinit_probability=1.5"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ReplayBuffer(**options)


def test_capacity_below_the_batch_is_refused(start):
    with pytest.raises(ValueError, match="capacity=4, batch size 8"):
        filled(start, batch=8, capacity=4).check_capacity(8)


def test_settings_round_trip():
    buffer = ReplayBuffer(50, 0.1, per_class=True)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(buffer))
    assert copy.get_config() == buffer.get_config()


def test_a_large_buffer_is_filled_a_part_at_a_time(start):
    """All rows are drawn, none twice, uniformly; the first part is that of a smaller buffer."""
    small, large = (filled(start, capacity=n).arrays()["chains"][0] for n in (2048, 5000))
    np.testing.assert_array_equal(small, large[:2048])
    assert large.shape == (5000, 2) and len(np.unique(large, axis=0)) == 5000
    counts = np.histogram(large, bins=10, range=(-1, 1))[0]
    assert np.abs(counts - 1000).max() < 150  # standard deviation 30


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_a_buffer_takes_its_own_memory_and_no_copy():
    """20 000 images of 32 x 32 x 3 are 234 MiB; beside them a part that is being drawn, 24 MiB, and
    what drawing it takes. A second copy of all would be another 234."""
    code = """
import numpy as np, tensorflow as tf, re
from jem_tf import ReplayBuffer, Uniform
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
start, buffer = Uniform(), ReplayBuffer(20_000)
start.adapt(np.stack([-np.ones((32, 32, 3)), np.ones((32, 32, 3))]))
start.draw(2048, tf.constant([1, 2]))
before = peak()
buffer.start_anew(start, tf.constant([1, 2]), 64, None, 10)
filled = peak()
draw = buffer.draw(64, start, tf.constant([1, 2]))
buffer.write(draw, draw.x, 1)
print(filled - before, peak() - before)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    filled, drawn = map(float, found.stdout.split())
    assert 234 < filled < 234 + 120
    assert drawn < 234 + 120
