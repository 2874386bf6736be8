"""Detection measures against scikit-learn, and their interval against theory."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from jem_tf.evaluation.measures.detection import detection


@pytest.fixture
def scores():
    """300 in-distribution and 200 out-of-distribution scores."""
    rng = np.random.default_rng(0)
    return rng.normal(1, 1, 300), rng.normal(0, 1, 200)


def test_measures_equal_those_of_scikit_learn(scores):
    in_scores, out_scores = scores
    labels, values = [1] * 300 + [0] * 200, [*in_scores, *out_scores]
    result = detection(in_scores, out_scores)
    assert result.auroc == pytest.approx(roc_auc_score(labels, values))
    assert result.aupr == pytest.approx(average_precision_score(labels, values))
    fpr, tpr, _ = roc_curve(labels, values, drop_intermediate=False)
    assert result.fpr95 == pytest.approx(fpr[np.argmax(tpr >= 0.95)], abs=1 / 200)
    assert (result.inside, result.outside, result.non_finite) == (300, 200, 0)


def test_the_interval_has_the_width_of_theory(scores):
    """Hanley and McNeil (1982); their formula assumes exponential scores, hence 15 %."""
    in_scores, out_scores = scores
    result = detection(in_scores, out_scores, resamples=1000)
    auroc, m, n = result.auroc, len(in_scores), len(out_scores)
    q1, q2 = auroc / (2 - auroc), 2 * auroc**2 / (1 + auroc)
    variance = auroc * (1 - auroc) + (m - 1) * (q1 - auroc**2) + (n - 1) * (q2 - auroc**2)
    width = 2 * 1.96 * np.sqrt(variance / (m * n))
    assert result.high - result.low == pytest.approx(width, rel=0.15)
    assert result.low < auroc < result.high


def test_ties_count_half():
    result = detection(np.ones(50), np.ones(50))
    assert result.auroc == result.low == result.high == 0.5


def test_non_finite_scores_are_counted_and_lowest(scores):
    in_scores, out_scores = scores
    non_finite = np.concatenate([out_scores, [np.nan, np.inf, -np.inf]])
    result = detection(in_scores, non_finite)
    assert result.non_finite == 3
    lowest = np.full(3, in_scores.min() - 100)
    expected = roc_auc_score([1] * 300 + [0] * 203, [*in_scores, *out_scores, *lowest])
    assert result.auroc == pytest.approx(expected)
    assert detection(np.full(5, np.nan), np.full(5, np.nan)).auroc == 0.5
