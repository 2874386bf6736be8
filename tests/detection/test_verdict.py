"""The score of a verdict is chosen with outliers made from the data."""

import numpy as np
import pytest

from jem_tf.detection.verdict import choose_score, made_up_outliers
from jem_tf.energy import OOD_SCORES

X = np.random.default_rng(0).multivariate_normal([0, 5], [[1, 0.9], [0.9, 1]], 400).astype("f4")


def test_outliers_stay_in_the_range_of_the_data():
    sets = made_up_outliers(X)
    for rows in sets.values():
        assert rows.shape == X.shape and rows.dtype == X.dtype
        assert (rows >= X.min(0) - 1e-6).all() and (rows <= X.max(0) + 1e-5).all()
    unit = (sets["constants"] - X.min(0)) / np.ptp(X, 0)
    np.testing.assert_allclose(unit[:, 0], unit[:, 1], atol=1e-5)  # one level of each range
    np.testing.assert_array_equal(np.sort(sets["shuffled"], 0), np.sort(X, 0))
    assert abs(np.corrcoef(sets["shuffled"].T)[0, 1]) < 0.2  # features no longer hang together


@pytest.mark.parametrize("best", OOD_SCORES)
def test_the_score_with_the_best_worst_case_is_chosen(best):
    """One score is the exact log density. The others see the first feature only."""

    def score(rows, kind):
        offsets = rows - [0, 5]
        if kind != best:
            return offsets[:, 0]
        inverse = np.linalg.inv([[1, 0.9], [0.9, 1]])
        return -np.einsum("nd,de,ne->n", offsets, inverse, offsets)

    kind, aurocs = choose_score(score, X)
    assert kind == best and min(aurocs[best].values()) > 0.6
    assert all(abs(aurocs[k]["shuffled"] - 0.5) < 0.05 for k in OOD_SCORES if k != best)


def test_non_finite_scores_count_as_outliers():
    inside = {row.tobytes() for row in X}

    def score(rows, kind):
        return np.array([1.0 if row.tobytes() in inside else np.nan for row in rows])

    assert set(choose_score(score, X)[1]["gradient_norm"].values()) == {1.0}
