"""Conformal p-values: by counting, and their guarantee over many splits of the data."""

import numpy as np
import pytest
from scipy.stats import beta, kstest

from jem_tf.detection.conformal import p_values, rows_needed, sorted_table


def test_p_values_count_the_calibration_scores():
    rng = np.random.default_rng(0)
    calibration, scores = rng.integers(0, 20, 50), rng.integers(-2, 22, 30)  # with ties
    counted = [(1 + (calibration <= score).sum()) / 51 for score in scores]
    np.testing.assert_allclose(p_values(scores, sorted_table(calibration)), counted, rtol=1e-6)


def test_groups_are_compared_with_their_own_scores():
    rng = np.random.default_rng(0)
    calibration, groups = rng.normal(size=60), rng.integers(0, 3, 60)
    scores, own = rng.normal(size=20), rng.integers(0, 3, 20)
    counted = [
        (1 + (calibration[groups == g] <= s).sum()) / (1 + (groups == g).sum())
        for s, g in zip(scores, own)
    ]
    table = sorted_table(calibration, groups)
    np.testing.assert_allclose(p_values(scores, table, own), counted, rtol=1e-6)


def test_nan_is_the_most_unusual_score():
    table = sorted_table(np.arange(19.0))
    np.testing.assert_allclose(p_values([np.nan, -np.inf, 18.0], table), [0.05, 0.05, 1.0])


@pytest.mark.parametrize("rate", [0.2, 0.1, 0.05, 0.01, 0.03])
def test_fewer_rows_than_needed_flag_nothing(rate):
    needed = rows_needed(rate)
    p = [float(p_values([-np.inf], sorted_table(np.zeros(n)))[0]) for n in (needed, needed - 1)]
    assert p[0] <= rate + 1e-7 < p[1]


@pytest.mark.parametrize("classes", [1, 3])
def test_the_false_alarm_rate_has_its_beta_distribution(classes):
    """200 splits of 100 calibration rows per class. Given a split, the share of all other rows
    that is flagged at a = 0.05 has the distribution Beta(k, n + 1 - k), k = floor(a (n + 1)).
    Kolmogorov-Smirnov at 1 %: a fixed seed, so that the test fails always or never.
    """
    rng = np.random.default_rng(0)
    n, rate = 100, 0.05
    groups, others = np.repeat(np.arange(classes), n), np.repeat(np.arange(classes), 20_000)
    shares = []
    for _ in range(200):
        table = sorted_table(rng.normal(groups), groups)
        flagged = p_values(rng.normal(others), table, others).numpy() <= rate
        shares.append([flagged[others == k].mean() for k in range(classes)])
    k = int(rate * (n + 1))
    for class_shares in np.transpose(shares):
        assert kstest(class_shares, beta(k, n + 1 - k).cdf).pvalue > 0.01
        # Its mean is k / (n + 1); four standard errors of 200 splits.
        assert np.mean(class_shares) == pytest.approx(k / (n + 1), abs=0.006)
