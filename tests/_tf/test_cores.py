"""Shares of a training: how many there are, and that they change nothing but the time."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf._tf import cores


@pytest.mark.slow
def test_each_operation_has_one_core_and_each_core_a_share():
    """In a process of its own: threads cannot be changed once TensorFlow has started."""
    code = """
import json
import tensorflow as tf
import jem_tf
from jem_tf._tf import cores

results = [cores.num_shares(default=2)]
for count in (1, 2, 32):
    cores.num_cores = lambda: count
    jem_tf.side_by_side()
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    results.append([threads, cores.num_shares(default=2)])
print(json.dumps(results))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [2, [1, 1], [1, 2], [4, 8]]


def test_a_call_after_tensorflow_has_started_warns():
    tf.zeros(1)
    with pytest.warns(UserWarning, match="TensorFlow has started already"):
        jem_tf.side_by_side()


@pytest.mark.parametrize("rows", [0, 1, 7, 8])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_shares_hold_all_rows_and_differ_by_one_row_at_most(rows, count):
    x = tf.range(rows)
    split = lambda x: [x[share] for share in cores.split_rows(x, count)]  # noqa: E731
    in_graph = tf.function(split, input_signature=[tf.TensorSpec([None], tf.int32)])
    for parts in (split(x), in_graph(x)):
        np.testing.assert_array_equal(tf.concat(parts, 0), x)
        sizes = [len(part) for part in parts]
        assert len(parts) == count and max(sizes) - min(sizes) <= 1


@pytest.mark.slow
def test_shares_take_the_same_steps(monkeypatch):
    """With a batch that cannot be halved. Only rounding may differ."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(14, 8, 8, 1)).astype(np.float32), np.arange(14) % 3

    def train(shares):
        monkeypatch.setattr(cores, "num_shares", lambda default=1: shares)
        keras.utils.set_random_seed(1)
        model = jem_tf.JEM(
            jem_tf.backbones.convnet((8, 8, 1), 3, width=4),
            sampler=jem_tf.SGLD(3, 1.0, 0.01),
            buffer=jem_tf.ReplayBuffer(32),
            seed=0,
        )
        model.compile(keras.optimizers.SGD(0.01))
        model.optimizer.build(model.trainable_variables)
        model.fit(x, y, batch_size=7, shuffle=False, verbose=0)
        return [*model.get_weights(), model.stored_chains()]

    for array, expected in zip(train(3), train(1)):
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5)
