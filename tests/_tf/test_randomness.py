"""Random numbers as functions of seeds: of all rows, or of each row by itself."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from jem_tf._tf import randomness

ROW_SEEDS = tf.constant([[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize(
    ("draw", "distribution"), [(randomness.normal, "norm"), (randomness.uniform, "uniform")]
)
def test_numbers_have_their_distribution(draw, distribution):
    numbers = draw([100, 50], tf.constant([1, 2])).numpy().ravel()
    assert stats.kstest(numbers, distribution).pvalue > 0.01
    by_row = draw([3, 2000], ROW_SEEDS).numpy().ravel()
    assert stats.kstest(by_row, distribution).pvalue > 0.01


@pytest.mark.parametrize("draw", [randomness.normal, randomness.uniform])
def test_a_row_with_its_own_seed_does_not_depend_on_others(draw):
    together = draw([3, 4, 2], ROW_SEEDS)
    alone = draw([1, 4, 2], ROW_SEEDS[1:2])
    assert together.shape == (3, 4, 2)
    np.testing.assert_array_equal(together[1:2], alone)
    assert (together[0] != together[1]).numpy().any()


@pytest.mark.parametrize("seed", [tf.constant([1, 2]), ROW_SEEDS], ids=["one", "by row"])
def test_fold_in_gives_other_seeds(seed):
    seeds = [randomness.fold_in(seed, data).numpy() for data in range(50)]
    assert all(s.shape == seed.shape for s in seeds)
    assert len(np.unique(np.reshape(seeds, (-1, 2)), axis=0)) == 50 * (seed.shape.rank * 2 - 1)
    np.testing.assert_array_equal(seeds[3], randomness.fold_in(seed, 3))
