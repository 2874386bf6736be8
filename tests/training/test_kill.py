"""`kill -9` at random moments of a run on digits: the end is the same, bit for bit."""

import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from jem_tf.training import run_directory as runs

COMMAND = [sys.executable, "-c", "import sys; from jem_tf.cli import main; sys.exit(main())"]
pytestmark = pytest.mark.slow


def start(out, *more):
    flags = ["--save-seconds", "0.5", "--resume", *more]
    return subprocess.Popen(
        [*COMMAND, "train", "digits", "--out", str(out), *flags],
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
    return runs.load(out)


def same(one, other):
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    for part in ("buffer", "progress"):
        mine, theirs = (getattr(model, part).arrays() for model in (one, other))
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name])


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The run that was never stopped."""
    out = tmp_path_factory.mktemp("runs") / "straight"
    return finish(out), (out / "log.csv").read_text()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ten_kills_change_nothing(number, straight, tmp_path):
    """Also in the middle of saving: no checkpoint is ever half there."""
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
    model, log = straight
    same(finish(out), model)
    assert (out / "log.csv").read_text() == log
