"""Shares of a training: how many, and that they change nothing but the time."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf._tf import cores as threads


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_one_core_for_an_operation_and_a_share_for_each_core():
    code = (
        "import jem_tf, os; from jem_tf import threads; print(threads.shares(2));"
        "threads._cores = lambda: {}; jem_tf.side_by_side();"
        "import tensorflow as tf;"
        "print(tf.config.threading.get_intra_op_parallelism_threads(), threads.shares(2))"
    )
    assert python(code.format(1)) == ["2", "1", "1"]
    assert python(code.format(2)) == ["2", "1", "2"]
    assert python(code.format(32)) == ["2", "4", "8"]


def test_too_late_is_said():
    tf.zeros(1)
    with pytest.warns(UserWarning, match="TensorFlow has begun"):
        jem_tf.side_by_side()


def test_shares_take_the_same_steps(monkeypatch):
    """A batch that cannot be halved; rounding alone may differ."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(21, 8, 8, 1)).astype(np.float32), np.arange(21) % 3

    def trained(shares):
        monkeypatch.setattr(threads, "shares", lambda whole=1: shares)
        keras.utils.set_random_seed(1)
        model = jem_tf.JEM(
            jem_tf.backbones.convnet((8, 8, 1), 3, width=4),
            sampler=jem_tf.SGLD(3, 1.0, 0.01),
            buffer=jem_tf.ReplayBuffer(32),
            seed=0,
        )
        model.compile(keras.optimizers.SGD(0.01))
        model.fit(x, y, batch_size=7, shuffle=False, verbose=0)
        return [*model.get_weights(), model.buffer["chains"].numpy()]

    for found, expected in zip(trained(3), trained(1)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
