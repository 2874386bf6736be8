"""Scores by Ray: the same rows and values, and nothing is lost with a worker."""

import sys
import threading
import time

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest

import jem_tf


def test_a_model_in_memory_is_refused(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="pass a path or an address"):
        jem_tf.score(model, np.ones((4, 2)), tmp_path / "a.parquet", engine="ray")


def test_a_missing_package_is_named(exported, images, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install jem_tf\[ray\]"):
        jem_tf.score(exported / "images", images[0], tmp_path / "a.parquet", engine="ray")


@pytest.fixture
def rows(tmp_path, images):
    """2000 rows, of which one in a hundred is not valid.

    None is a calibration row: the rank of its own score, and so its p-value, is left to rounding.
    """
    pytest.importorskip("ray", reason="needs ray: pip install jem_tf[ray]")
    x = np.tile(images[0], (10, 1, 1, 1))
    x += np.random.default_rng(0).normal(0, 0.05, x.shape)
    x[7::100, 0, 0] = np.nan
    np.savez(tmp_path / "rows.npz", x=x)
    return tmp_path / "rows.npz"


def assert_same(first, second):
    first, second = pq.read_table(first), pq.read_table(second)
    for name in ("id", "class", "is_ood", "error"):
        assert first[name].equals(second[name])
    for name in ("probability", "energy", "ood_score", "p_value"):
        np.testing.assert_allclose(first[name].to_numpy(), second[name].to_numpy(), rtol=1e-4)


@pytest.mark.slow
def test_two_workers_write_the_rows_and_values_of_one_process(exported, rows, tmp_path):
    model = exported / "images"
    one = jem_tf.score(model, rows, tmp_path / "one.parquet", part_rows=100)
    two = jem_tf.score(model, rows, tmp_path / "two.parquet", part_rows=100, engine="ray")
    assert (two.rows, two.errors) == (one.rows, one.errors) == (2000, 20)
    assert_same(one.out, two.out)


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(exported, rows, tmp_path):
    """One of two workers is killed as soon as the first part is written."""
    model, out, killed = exported / "images", tmp_path / "two.parquet", []

    def kill():
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not killed:
            if list((tmp_path / "two.parquet.parts").glob("0*.parquet")):
                for process in psutil.Process().children(recursive=True):
                    if "PartScorer" in process.name() or "PartScorer" in "".join(process.cmdline()):
                        process.kill()
                        killed.append(process.pid)
                        return
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    options = {"part_rows": 10, "batch_size": 5, "engine": "ray"}
    two = jem_tf.score(model, rows, out, **options)
    thread.join()
    assert killed and two.rows == 2000
    one = jem_tf.score(model, rows, tmp_path / "one.parquet", **{**options, "engine": "local"})
    assert_same(one.out, out)
