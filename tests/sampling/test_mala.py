"""MALA against densities with known moments, where it is exact."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from jem_tf import MALA, SGLD

from .densities import SEED, check_gaussian, check_mixture, run, standard_normal


def test_chains_recover_mean_and_covariance_of_a_gaussian():
    check_gaussian(MALA(200, step_size=0.2))


def test_chains_recover_the_weights_of_a_mixture():
    check_mixture(MALA(200, step_size=0.2))


def test_chains_pass_a_kolmogorov_smirnov_test_where_large_sgld_steps_fail():
    """The correction makes MALA exact. At this step size the variance of SGLD is 67 % off."""
    start = tf.zeros([5000, 1])
    exact, diagnostics = run(MALA(100, step_size=0.8), standard_normal, start)
    biased, _ = run(SGLD(100, step_size=0.8, temperature=1.0), standard_normal, start)
    assert stats.kstest(exact.numpy()[:, 0], "norm").pvalue > 0.01
    assert stats.kstest(biased.numpy()[:, 0], "norm").pvalue < 1e-4
    assert 0.3 < diagnostics["acceptance"] < 1.0


def test_the_acceptance_rate_is_that_of_the_corrected_rule():
    """The mean of min(1, p(x') q(x | x') / (p(x) q(x' | x))), by SciPy."""
    step_size, rng = 0.8, np.random.default_rng(0)
    x = rng.normal(size=200_000)
    spread = np.sqrt(2 * step_size)
    proposal = x - step_size * x + spread * rng.normal(size=x.size)

    def log_q(to, origin):
        return stats.norm.logpdf(to, origin - step_size * origin, spread)

    ratio = stats.norm.logpdf(proposal) + log_q(x, proposal)
    ratio -= stats.norm.logpdf(x) + log_q(proposal, x)
    expected = np.exp(np.minimum(0.0, ratio)).mean()
    start = tf.constant(x[:100_000, None], tf.float32)
    _, diagnostics = run(MALA(1, step_size=step_size), standard_normal, start)
    assert abs(diagnostics["acceptance"] - expected) < 0.01  # standard error 0.0015


def test_a_high_acceptance_rate_leads_to_larger_steps():
    sampler, size = MALA(), tf.constant(1e-3)
    for acceptance, expected in ((0.9, np.exp(0.1 * (0.9 - 0.574))), (0.574, 1.0)):
        tuned = sampler.tune(size, {"acceptance": tf.constant(acceptance)})
        np.testing.assert_allclose(tuned, 1e-3 * expected, rtol=1e-5)


def test_no_chains_are_accepted_as_input():
    """A replica may get no rows of the last batch."""
    x, diagnostics = run(MALA(2, step_size=0.1), standard_normal, tf.zeros([0, 1]))
    assert x.shape == (0, 1) and float(diagnostics["acceptance"]) == 0.0


def test_chains_with_a_schedule_stay_at_the_density_they_start_from():
    """Step sizes that alternate between 1.2 and 0.1: each proposal needs its own drift.

    200 000 exact samples of N(0, 1) have a variance of 1 with a standard error of 0.003. With the
    drift of the previous step size it became 0.96 within 10 steps.
    """
    sizes = [1.2, 0.1] * 5
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(list(range(9)), sizes)
    start = tf.random.stateless_normal([200_000, 1], SEED)
    ends, _ = run(MALA(10, schedule), lambda x: -0.5 * x[:, 0] ** 2, start)
    assert np.var(ends) == pytest.approx(1.0, abs=0.01)
