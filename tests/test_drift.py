"""Drift of a stream: uniform ranks, the rate of false alarms, and how soon drift is found."""

import numpy as np
import pytest
from scipy.stats import kstest

from jem_tf.drift import EXPONENTS, DriftMonitor


def p_values(scores, calibration):
    below = np.searchsorted(np.sort(calibration), scores, side="right")
    return (1 + below) / (1 + len(calibration))


def test_ranks_are_uniform_for_a_fixed_set_of_calibration_rows(monkeypatch):
    """40 calibration rows that lie too high: p-values are not uniform, ranks soon are."""
    calibration = np.random.default_rng(3).normal(0.4, 1, 40)
    scores = np.random.default_rng(4).normal(0.4, 1, 4000)
    monitor, ranks = DriftMonitor(40), []
    rank = monitor._rank
    monkeypatch.setattr(monitor, "_rank", lambda p: ranks.append(rank(p)) or ranks[-1])
    monitor.update(p_values(scores, calibration))
    assert len(ranks) == 4000
    assert kstest(ranks, "uniform").pvalue > 0.01


def test_the_detector_is_that_of_its_definition():
    """Nine calibration rows and three inputs of known ranks; the monitor draws the same U."""
    monitor = DriftMonitor(rows=9, seed=1)
    rng = np.random.default_rng(1)
    exponents, expected = np.array(EXPONENTS), np.zeros(5)
    for i, p in enumerate([1.0, 0.1, 0.5]):
        below = [9, 0, 4][i]
        others = [0, 0, 1][i]  # inputs before it that are lower
        u = (below + others + rng.random()) / (10 + i)
        expected = exponents * u ** (exponents - 1) * (1 + expected)
        monitor.update(p)
        assert monitor.evidence == pytest.approx(np.log10(expected.mean()), rel=1e-9)


def test_false_alarms_are_at_least_as_rare_as_stated():
    """200 streams of 400 inputs at one false alarm in 400 inputs or fewer. The number of alarms in
    a stream is at most 1 on average; three standard errors are 0.2."""
    counts = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        monitor = DriftMonitor(30, inputs_per_false_alarm=400, seed=seed)
        counts.append(monitor.update(p_values(rng.normal(size=400), rng.normal(size=30))))
    assert np.mean(counts) <= 1.0


def test_drift_is_found_soon_and_again():
    """Of one input in four out of distribution, after 2 000 without drift."""
    rng = np.random.default_rng(0)
    calibration = rng.normal(size=1000)
    monitor = DriftMonitor(1000)
    assert monitor.update(p_values(rng.normal(size=2000), calibration)) == 0
    drifted = rng.normal(size=400) - 5 * (rng.uniform(size=400) < 0.25)
    assert monitor.update(p_values(drifted[:100], calibration)) >= 1
    assert monitor.update(p_values(drifted[100:], calibration)) >= 1


def test_nan_is_unusual_and_wrong_arguments_are_named():
    monitor = DriftMonitor(100)
    assert monitor.update([np.nan] * 10) >= 1
    with pytest.raises(ValueError, match="rows=0"):
        DriftMonitor(0)
    with pytest.raises(ValueError, match=r"inputs_per_false_alarm=0\.5"):
        DriftMonitor(10, inputs_per_false_alarm=0.5)
