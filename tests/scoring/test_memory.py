"""Memory does not grow with the number of rows."""

import json
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = """
import json, resource, sys, jem_tf
summary = jem_tf.score(*sys.argv[1:4])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
print(json.dumps([summary.rows, summary.errors, peak]))
"""


@pytest.mark.slow
def test_ten_times_the_rows_need_no_more_memory(exported, tmp_path):
    """100 000 rows of a file are 14 MB, their scores more than that; a process has about 800 MB."""
    peaks = []
    for rows in (10_000, 100_000):
        x = np.random.default_rng(0).uniform(-1, 1, (rows, 6, 6, 1)).astype(np.float32)
        np.savez(tmp_path / f"{rows}.npz", x=x)
        words = [exported / "images", tmp_path / f"{rows}.npz", tmp_path / f"{rows}.parquet"]
        command = [sys.executable, "-c", PROGRAM, *map(str, words)]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        scored, errors, peak = json.loads(result.stdout.splitlines()[-1])
        assert (scored, errors) == (rows, 0)
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 50, peaks
