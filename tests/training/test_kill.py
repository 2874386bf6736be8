"""`kill -9` at random moments of a run on digits: the end is the same, bit for bit."""

import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers import assert_same_weights

import jem_tf

pytestmark = pytest.mark.slow


def start(out):
    flags = ["--save-seconds", "0.5", "--resume"]
    return subprocess.Popen(
        [sys.executable, "-m", "jem_tf_cli", "train", "digits", "--out", str(out), *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def checkpoints_of(out):
    return {path.name for path in out.glob("checkpoints/[0-9]*")}


def finish(out):
    process = start(out)
    error = process.communicate(timeout=900)[1]
    assert process.returncode == 0, error
    return jem_tf.load(out)


def assert_same_models(model, other):
    assert_same_weights(model, other)
    for part in ("buffer", "progress", "input_range"):
        arrays, expected = (getattr(m, part).arrays() for m in (model, other))
        assert arrays.keys() == expected.keys()
        for name in arrays:
            np.testing.assert_array_equal(arrays[name], expected[name])


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The model and the log of a run without interruption."""
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    return finish(out), (out / "log.csv").read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ten_kills_change_nothing(number, uninterrupted, tmp_path):
    """Also while a checkpoint is written: it is complete or absent."""
    rng = random.Random(0)
    out = tmp_path / "killed"
    for kill in range(10):
        before = checkpoints_of(out)
        process = start(out)
        while process.poll() is None and checkpoints_of(out) == before:
            time.sleep(0.05)
        time.sleep(rng.uniform(0.0, 1.5))
        assert process.poll() is None, f"finished after {kill} kills: {process.stderr.read()}"
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode == (-9 if number == signal.SIGKILL else 143)
    model, log = uninterrupted
    assert_same_models(finish(out), model)
    assert (out / "log.csv").read_text() == log
