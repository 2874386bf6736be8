"""Detection measures against scikit-learn, and their intervals against theory."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from jem_tf.evaluation.measures import detection as ood


@pytest.fixture
def scores():
    rng = np.random.default_rng(0)
    return rng.normal(1, 1, 300), rng.normal(0, 1, 200)


def test_measures_are_scikit_learns(scores):
    inside, outside = scores
    truth, values = [1] * 300 + [0] * 200, [*inside, *outside]
    found = ood.detection(inside, outside)
    assert found.auroc == pytest.approx(roc_auc_score(truth, values))
    assert found.aupr == pytest.approx(average_precision_score(truth, values))
    fpr, tpr, _ = roc_curve(truth, values, drop_intermediate=False)
    assert found.fpr95 == pytest.approx(fpr[np.argmax(tpr >= 0.95)], abs=1 / 200)


def test_interval_has_the_width_that_theory_gives(scores):
    """Hanley and McNeil (1982); its formula assumes exponential scores, hence 15 %."""
    inside, outside = scores
    found = ood.detection(inside, outside, resamples=1000)
    a, m, n = found.auroc, len(inside), len(outside)
    q1, q2 = a / (2 - a), 2 * a**2 / (1 + a)
    variance = (a * (1 - a) + (m - 1) * (q1 - a**2) + (n - 1) * (q2 - a**2)) / (m * n)
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.sqrt(variance), rel=0.15)
    assert found.low < a < found.high


def test_ties_count_half():
    found = ood.detection(np.ones(50), np.ones(50))
    assert found.auroc == found.low == found.high == 0.5


def test_scores_that_are_no_numbers_are_counted_and_lowest(scores):
    inside, outside = scores
    broken = np.concatenate([outside, [np.nan, np.inf, -np.inf]])
    found = ood.detection(inside, broken)
    assert found.non_finite == 3
    lowest = np.full(3, inside.min() - 100)
    expected = roc_auc_score([1] * 300 + [0] * 203, [*inside, *outside, *lowest])
    assert found.auroc == pytest.approx(expected)
    assert ood.detection(np.full(5, np.nan), np.full(5, np.nan)).auroc == 0.5
