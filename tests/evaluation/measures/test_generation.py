"""Measures of samples against closed forms and known cases."""

import numpy as np
import pytest
from scipy import linalg

from jem_tf import data
from jem_tf.data import ood_sets
from jem_tf.evaluation.measures import generation


def test_the_judge_separates_digits_from_noise():
    digits = data.load("digits")
    judge = generation.Judge(*digits.arrays("train"))
    x, y = digits.arrays("test")
    real = judge.quality(x, y)
    assert real.recognised > 0.97
    assert real.diversity == pytest.approx(1.0, abs=0.05)
    noise = judge.quality(ood_sets.load("noise", digits, len(x)), y)
    assert noise.recognised < 0.3
    copies = judge.quality(np.repeat(x[:1], 10, 0), np.repeat(y[:1], 10))
    assert copies.diversity == 0.0


def test_another_classifier_can_be_the_judge():
    """The first value of a row is its label, so that a judge that reads it knows all labels."""
    y = np.arange(10) // 5
    x = np.stack([y, np.arange(10)], axis=1)
    judge = generation.Judge(x, y, predict=lambda rows: rows[:, 0])
    assert judge.quality(x[[0, 5, 6, 1]], np.array([0, 1, 1, 1])).recognised == 0.75


def test_fid_of_gaussians_is_the_closed_form():
    """The features have exactly the given mean and covariance: there is no sampling error."""
    rng = np.random.default_rng(0)

    def gaussian(mean, covariance, n=500):
        z = rng.normal(size=(n, 4))
        z -= z.mean(0)
        z = z @ linalg.inv(linalg.cholesky(np.cov(z, rowvar=False)))
        return z @ linalg.cholesky(covariance) + mean

    a, b = (x @ x.T + np.eye(4) for x in rng.normal(size=(2, 4, 4)))
    mean = np.array([1.0, 0.0, 2.0, 0.0])
    expected = 5.0 + np.trace(a + b - 2 * linalg.sqrtm(a @ b)).real
    assert generation.frechet(gaussian(0, a), gaussian(mean, b)) == pytest.approx(expected)
    same = gaussian(0, a)
    assert generation.frechet(same, same) == pytest.approx(0.0, abs=1e-6)


def test_inception_score_of_known_cases():
    """Confident of each of 4 classes equally often: 4. The same prediction for all rows: 1."""
    confident = np.repeat(np.eye(4), 100, axis=0)  # in the order of classes, as samples are
    assert generation.inception_score(confident, splits=1) == pytest.approx(4.0)
    assert generation.inception_score(confident) == pytest.approx(4.0, abs=0.15)  # uneven splits
    assert generation.inception_score(np.full((400, 4), 0.25)) == pytest.approx(1.0)


def test_neighbours_find_copies():
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(200, 3, 3, 1)), rng.normal(size=(100, 3, 3, 1))
    copied, index = generation.neighbours(train[5:15], train, test)
    assert copied.copies == 1.0 and copied.samples == 0.0
    assert index.tolist() == list(range(5, 15))
    new, _ = generation.neighbours(rng.normal(size=(300, 3, 3, 1)), train, test)
    assert new.copies < 0.05
    assert new.samples == pytest.approx(new.test, rel=0.1)
