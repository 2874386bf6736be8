"""The threshold of out-of-distribution detection."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import jem_tf
from jem_tf.detection import FALSE_ALARM_RATE, fit_threshold, is_flagged


def test_the_threshold_flags_the_false_alarm_rate_of_the_calibration_scores():
    scores = np.random.default_rng(0).normal(size=2_000)
    flagged = is_flagged(scores, fit_threshold(scores))
    assert flagged.mean() == FALSE_ALARM_RATE == 0.05
    assert scores[flagged].max() < scores[~flagged].min()


def test_the_threshold_interpolates_between_scores():
    """101 scores 0, 1, ..., 100: the 5 % quantile is 5, and 5 itself is not flagged."""
    scores = np.random.default_rng(0).permutation(101).astype(np.float32)
    assert fit_threshold(scores) == 5.0
    assert fit_threshold(np.append(scores, np.nan)) == 5.0  # NaN is ignored
    assert is_flagged(np.array([4.9, 5.0, 5.1]), 5.0).tolist() == [True, False, False]


def test_non_finite_scores_are_flagged():
    assert is_flagged(np.array([np.nan, np.inf, -np.inf]), 0.0).all()
    assert is_flagged(np.array([1.0]), np.nan).all()


IMPORT = """
import sys, types
package = types.ModuleType("jem_tf")  # an empty parent package, which imports nothing else
package.__path__ = ["jem_tf"]
sys.modules["jem_tf"] = package
import jem_tf.detection, jem_tf.pictures
print(*sys.modules)
"""


def test_importing_the_package_imports_no_heavy_library():
    modules = subprocess.run(
        [sys.executable, "-c", IMPORT],
        cwd=Path(jem_tf.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert {"jem_tf.detection.calibration", "jem_tf.pictures"} <= set(modules)
    assert not {"sklearn", "scipy", "PIL", "tensorflow"} & set(modules)
