"""Budgets: what each name allows."""

import pytest

from jem_tf.evaluation import BUDGETS


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_the_published_budget_reaches_ten_thousand_samples(classes):
    """As many as the generation part draws: published FID needs that many."""
    budget = BUDGETS["published"]
    per_class = max(1, min(budget.samples_per_class, budget.max_samples // classes))
    expected = 10_000 if classes >= 10 else 1_000 * classes
    assert per_class * classes == expected
    assert budget.feature_rows >= 10_000
