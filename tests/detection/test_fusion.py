"""The fusion of statistics: tails by counting, weights against scikit-learn, and its rule."""

import numpy as np
from scipy.optimize import minimize
from sklearn.metrics import roc_auc_score

from jem_tf.detection.fusion import PENALTY, fit_fusion, fused_score, log_tails


def auroc(fusion, inside, outside):
    scores = fused_score(np.float32(np.concatenate([inside, outside])), *fusion)
    return roc_auc_score(np.repeat([1, 0], [len(inside), len(outside)]), scores)


def test_tails_count_the_rows_of_the_table():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 9, (50, 2)).astype("f4")
    values = rng.choice([-1, *range(9), 10], (20, 2)).astype("f4")
    low, high = log_tails(values, np.sort(rows, axis=0).T)
    for s in range(2):
        at_most = [(1 + (rows[:, s] <= v).sum()) / 51 for v in values[:, s]]
        at_least = [(1 + (rows[:, s] >= v).sum()) / 51 for v in values[:, s]]
        np.testing.assert_allclose(low[:, s], np.log(at_most), rtol=1e-5)
        np.testing.assert_allclose(high[:, s], np.log(at_least), rtol=1e-5, atol=1e-7)


def test_tails_are_interpolated_between_rows():
    low, high = log_tails(np.float32([[2.25], [9.5], [-0.5]]), np.arange(10, dtype="f4")[None])
    np.testing.assert_allclose(np.exp(low)[:, 0], np.float32([4.25, 11, 1]) / 11, rtol=1e-5)
    np.testing.assert_allclose(np.exp(high)[:, 0], np.float32([8.75, 1, 11]) / 11, rtol=1e-5)


def test_non_finite_values_are_the_most_unusual_in_both_tails():
    table = np.arange(9, dtype="f4")[None]
    tails = log_tails(np.float32([[np.nan], [np.inf], [-np.inf]]), table)
    np.testing.assert_allclose(tails, np.log(0.1), rtol=1e-6)


def test_statistics_take_part_in_their_own_direction():
    """The first is lower for outliers, the second higher, the third says nothing."""
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=(500, 3)), rng.normal(size=(500, 3)) + [-2, 2, 0]
    fusion = fit_fusion(inside, {"made": outside})
    assert fusion.low[0] > 0.1 and fusion.high[0] < 0.02
    assert fusion.high[1] > 0.1 and fusion.low[1] < 0.02
    assert max(fusion.low[2], fusion.high[2]) < 0.1  # by chance, of 500 rows
    new = rng.normal(size=(2, 2000, 3)) + np.float64([[[0, 0, 0]], [[-2, 2, 0]]])
    best = roc_auc_score(np.repeat([1, 0], 2000), -(new[..., 1] - new[..., 0]).ravel())
    assert auroc(fusion, *new) > best - 0.01  # of the likelihood ratio


def test_weights_are_the_optimum_of_a_penalised_logistic_regression():
    """Against Nelder-Mead, which knows no gradients, on the squares of the weights' roots."""
    rng = np.random.default_rng(1)
    inside, outside = rng.normal(size=(200, 1)), rng.normal(size=(80, 1)) - 1.5
    fusion = fit_fusion(inside, {"a": outside[:60], "b": outside[60:]})
    tails = [
        -np.concatenate(log_tails(np.float32(v), fusion.table), axis=1)
        for v in (inside, outside[:60], outside[60:])
    ]

    def loss(parameters):
        slopes = parameters[1:] ** 2
        logits = [t @ slopes + parameters[0] for t in tails]
        inner = np.logaddexp(0, logits[0]).mean()
        outer = np.mean([np.logaddexp(0, -v).mean() for v in logits[1:]])
        return (inner + outer) / 2 + PENALTY / 2 * (slopes**2).sum()

    options = {"maxiter": 4000, "xatol": 1e-7, "fatol": 1e-12}
    best = minimize(loss, [-1.0, 0.5, 0.1], method="Nelder-Mead", options=options)
    np.testing.assert_allclose([fusion.low[0], fusion.high[0]], best.x[1:] ** 2, atol=2e-3)


def test_each_kind_of_outliers_counts_alike():
    """1000 rows of one kind do not hide 10 of another."""
    rng = np.random.default_rng(0)
    inside = rng.normal(size=(300, 2))
    many, few = rng.normal(size=(1000, 2)) - [4, 0], rng.normal(size=(10, 2)) - [0, 4]
    fusion = fit_fusion(inside, {"many": many, "few": few})
    assert fusion.low[1] > 0.5 * fusion.low[0] > 0
