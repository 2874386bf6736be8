"""What users pass to `fit` and `adapt`: summaries against NumPy, warnings."""

import re

import numpy as np
import pytest
import tensorflow as tf

from jem_tf.data import inputs


@pytest.mark.parametrize("batch", [7, 64, 300])
def test_a_summary_holds_the_range_of_all_rows_and_a_sample_of_them(batch, monkeypatch):
    monkeypatch.setattr(inputs, "NUM_ROWS", 40)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 5, 2)).astype(np.float32), np.arange(300) // 100
    summary = inputs.summarise(inputs.batches_of(x, y, batch), classes=3)
    np.testing.assert_array_equal(summary.bounds, [x.min((0, 1)), x.max((0, 1))])
    assert summary.batch == batch
    assert 40 <= len(summary.x) <= 300 // 2
    counts = np.bincount(summary.y)
    assert counts.max() - counts.min() <= 1  # rows of all parts of the data
    rows = {row.tobytes(): label for row, label in zip(x, y)}
    assert all(rows[row.tobytes()] == label for row, label in zip(summary.x, summary.y))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_unscaled_images_cause_a_warning(dtype):
    x = np.random.default_rng(0).integers(0, 256, (20, 4, 4, 1)).astype(dtype)
    summary = inputs.summarise(inputs.batches_of(x, None, 8), classes=2)
    assert re.search(r"unscaled 8-bit images: range \[\d+, 25\d\]", summary.unscaled)


@pytest.mark.parametrize(
    "x",
    [
        np.random.default_rng(0).uniform(-1, 1, (20, 4, 4, 1)),
        np.random.default_rng(0).uniform(0, 255, (20, 4, 4, 1)),
        np.random.default_rng(0).integers(0, 256, (20, 4)).astype(float),
    ],
    ids=["scaled", "fractions", "vectors"],
)
def test_other_inputs_cause_none(x):
    assert inputs.summarise(inputs.batches_of(x, None, 8), classes=2).unscaled is None


def test_looking_ahead_loses_no_item_of_an_iterator():
    items = [(np.full((2, 1), i), np.zeros(2)) for i in range(5)]
    batches, stream = inputs.look_ahead(iter(items), 3)
    assert [x[0, 0] for x, _ in batches] == [0, 1, 2]
    assert [x[0, 0] for x, _ in stream] == [0, 1, 2, 3, 4]
    _, same = inputs.look_ahead(items, 3)
    assert same is items


def test_looking_ahead_stops_at_large_batches(monkeypatch):
    monkeypatch.setattr(inputs, "MAX_BYTES", 20)
    items = [(np.zeros(2, np.float64), None)] * 5  # 16 bytes each
    batches, _ = inputs.look_ahead(iter(items), 5)
    assert len(list(batches)) == 2


def test_the_number_of_batches_in_an_epoch():
    x = np.zeros((300, 2))
    rows = tf.data.Dataset.from_tensor_slices(x).batch(50)
    count = inputs.batches_per_epoch
    assert count(x, 50, None, 0.0) == 6 and count(x, 50, None, 0.2) == 5
    assert count(x, 50, 4, 0.0) == 4
    assert count(rows, 1, None, 0.0) == 6 and count(rows.repeat(), 1, None, 0.0) is None
    assert count(iter([x]), 1, None, 0.0) is None and count([x] * 3, 1, None, 0.0) == 3


def test_a_pair_is_a_tuple_or_a_list_of_arrays():
    x, y = np.zeros((3, 2)), np.zeros(3)
    batches = [(x, y), (x, y)]
    for pair in ((x, y), [x, y]):
        assert inputs.as_pair(pair)[0] is x and inputs.as_pair(pair)[1] is y
    assert inputs.as_pair(batches) == (batches, None)
    with pytest.raises(ValueError, match="3 parts"):
        inputs.as_pair((x, y, y))


def test_single_rows_of_a_data_set_raise():
    x, y = np.zeros((6, 2), np.float32), np.zeros(6, np.int64)
    rows = tf.data.Dataset.from_tensor_slices((x, y))
    with pytest.raises(ValueError, match=r"`\.batch\(\)` it.*TensorSpec"):
        next(inputs.batches_of(rows, None, 8))
    assert len(next(inputs.batches_of(rows.batch(4), None, 8))[0]) == 4
