"""Calls over arrays of any length: a batch at a time, each with its own seed."""

import resource

import numpy as np
import pytest
import tensorflow as tf

from jem_tf.model.batching import BatchedCalls


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 20])
def test_all_rows_are_computed_in_batches(rows):
    sizes = []

    def double(x, labels, seed):
        tf.py_function(lambda x: sizes.append(len(x)), [x], [])
        return 2.0 * x[:, 0] + tf.cast(labels, tf.float32)

    x, labels = np.arange(rows, dtype=np.float32)[:, None], np.ones(rows, np.int32)
    result = BatchedCalls()("double", double, x, 8, labels)
    np.testing.assert_array_equal(result, 2.0 * np.arange(rows) + 1.0)
    assert sizes == [len(range(i, min(i + 8, rows))) for i in range(0, max(rows, 1), 8)]


def test_each_batch_has_its_own_seed():
    call = BatchedCalls()
    run = lambda x, _, seed: tf.random.stateless_uniform([tf.shape(x)[0]], seed)  # noqa: E731
    first = call("uniform", run, np.zeros((8, 1)), 4, seed=1)
    assert (first[:4] != first[4:]).all()
    np.testing.assert_array_equal(first, call("uniform", run, np.zeros((8, 1)), 4, seed=1))
    assert (first != call("uniform", run, np.zeros((8, 1)), 4, seed=2)).all()


def test_a_function_is_traced_once_until_traces_are_cleared():
    traces = []
    call = BatchedCalls()
    for _ in range(2):
        for rows in (1, 5):
            call("count", lambda x, *_: traces.append(1) or x[:, 0], np.zeros((rows, 2)), 4)
    assert len(traces) == 1
    call.clear()
    call("count", lambda x, *_: traces.append(1) or x[:, 0], np.zeros((1, 2)), 4)
    assert len(traces) == 2


@pytest.mark.parametrize("batch_size", [0, -1, 2.5])
def test_errors_quote_wrong_batch_sizes(batch_size):
    with pytest.raises(ValueError, match=f"batch_size={batch_size}"):
        BatchedCalls()("name", lambda x, *_: x, np.zeros((1, 2)), batch_size)


def test_long_arrays_are_read_a_batch_at_a_time(make_model):
    """800 MB of rows, if all of them were in memory at once."""
    model = make_model(features=1000)
    rows = np.broadcast_to(np.ones((1, 1000), np.float32), (200_000, 1000))
    model.energy(rows[:1000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert model.energy(rows, batch_size=1000).shape == (200_000,)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
