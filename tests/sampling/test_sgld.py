"""SGLD against densities with known moments, and its update against the equation."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf import MALA, SGLD

from .densities import SEED, check_gaussian, check_mixture, gaussian, standard_normal


def test_chains_recover_mean_and_covariance_of_a_gaussian():
    check_gaussian(SGLD(600, step_size=0.02, temperature=1.0))  # the bias of this size is below 2 %


def test_chains_recover_the_weights_of_a_mixture():
    check_mixture(SGLD(600, step_size=0.02, temperature=1.0))


def test_a_step_is_the_equation_of_the_paper():
    x = tf.constant([[1.0, 2.0]])
    moved, _ = SGLD(1, step_size=0.5, noise=0).run(lambda x: -tf.reduce_sum(x**2, 1), x, SEED)
    np.testing.assert_allclose(moved, [[0.0, 0.0]])  # x - 0.5 * 2 x
    noisy, _ = SGLD(1, step_size=1e-9, noise=0.3).run(
        lambda x: tf.reduce_sum(x, 1), tf.zeros([1000, 10]), SEED
    )
    assert abs(noisy.numpy().std() - 0.3) < 0.01


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("seeds", ["one", "by row"])
def test_shares_end_where_a_run_of_all_rows_ends(rows, seeds):
    """The second share has another density, as one with other labels would."""
    seed = SEED if seeds == "one" else tf.stack([tf.range(rows), tf.range(rows)], axis=1)
    sampler = SGLD(5, step_size=0.1, noise=0.3)
    start = tf.random.stateless_normal([rows, 2], SEED)
    half = rows // 2
    signs = tf.constant([1.0] * half + [-1.0] * (rows - half))
    ends, diagnostics = sampler.run(lambda x: signs * gaussian(x), start, seed)
    shares = [gaussian, lambda x: -gaussian(x)]
    share_ends, share_diagnostics = tf.function(lambda x: sampler.run(shares, x, seed))(start)
    np.testing.assert_allclose(share_ends, ends, rtol=1e-5)
    assert {k: float(v) for k, v in share_diagnostics.items()} == pytest.approx(
        {k: float(v) for k, v in diagnostics.items()}, rel=1e-4
    )


def test_clip_bounds_the_drift_of_a_step():
    x, _ = SGLD(1, step_size=10.0, noise=0, clip=0.1).run(
        lambda x: tf.reduce_sum(x * [5.0, -5.0], 1), tf.zeros([1, 2]), SEED
    )
    np.testing.assert_allclose(x, [[0.1, -0.1]])


def test_a_schedule_is_followed_along_the_chain():
    """Polynomial decay from 1 to 0 over 4 steps adds 1 + 3/4 + 1/2 + 1/4 times a unit slope."""
    decay = keras.optimizers.schedules.PolynomialDecay(1.0, 4, 0.0)
    x, _ = SGLD(4, step_size=decay, noise=0).run(lambda x: x[:, 0], tf.zeros([1, 1]), SEED)
    np.testing.assert_allclose(x, [[2.5]])
    assert SGLD.langevin(steps=4).noise == "tied"


def test_a_self_tuning_step_size_follows_curvature_and_acceptance_and_stays_bounded():
    sampler = SGLD(20, temperature=1.0)  # bounds: 0.05² / 40 and 0.5² / 40

    def tune(size, stiffness, acceptance=1.0):
        stats = {"stiffness": tf.constant(stiffness), "acceptance": tf.constant(acceptance)}
        return float(sampler.tune(tf.constant(size), stats))

    size = 1e-3
    assert tune(size, 1e-6) == pytest.approx(size * np.exp(0.05))  # a straight density
    assert tune(size, 10.0) == pytest.approx(size * np.exp(-0.05))  # a curved one
    assert tune(size, 0.1) == pytest.approx(size)
    assert tune(size, 1e-6, acceptance=0.8) == pytest.approx(size)  # many dimensions
    assert tune(size, 1e-6, acceptance=0.2) == pytest.approx(size * np.exp(-0.05))
    assert tune(0.5**2 / 40, 1e-6) == pytest.approx(0.5**2 / 40)
    assert tune(0.05**2 / 40, 10.0) == pytest.approx(0.05**2 / 40)
    assert tune(size, float("nan")) == pytest.approx(size)
    assert sampler.at_lower_bound(0.05**2 / 40) and not sampler.at_lower_bound(size)
    assert not SGLD(20, step_size=1e-9).at_lower_bound(1e-9)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_a_self_tuning_step_size_is_right_in_equilibrium(temperature):
    """Exact samples of N(0, 0.2²): a k / 2 = 0.05 with the curvature k of f, wherever it begins.

    In equilibrium, half of the steps lead down. A rule that asks chains to climb shrinks the step
    size to its bound. Here 400 updates lead to the target from both sides.
    """
    sampler, std = SGLD(20, temperature=temperature), 0.2
    density = lambda x: -0.5 * temperature * tf.reduce_sum((x / std) ** 2, 1)  # noqa: E731

    @tf.function
    def train(x, size):
        for i in tf.range(400):
            x, stats = sampler.run(density, x, tf.stack([i, i]), step_size=size)
            size = sampler.tune(size, stats)
        return x, size

    start = std * tf.random.stateless_normal([200, 8], SEED)
    for first in sampler.step_size_bounds:
        x, size = train(start, tf.constant(first))
        assert float(size) == pytest.approx(0.1 * std**2 / temperature, rel=0.05)
        # Unadjusted steps enlarge the variance by a k / 2; a standard error is 3.5 %.
        assert np.var(x) == pytest.approx(std**2 * 1.05, rel=0.1)


def test_the_acceptance_probability_is_that_of_the_metropolis_rule():
    """MALA accepts the same moves; a Monte Carlo estimate by SciPy is in `test_mala.py`."""
    start = tf.random.stateless_normal([100_000, 1], SEED)
    _, free = SGLD(2, step_size=0.8, temperature=1.0).run(standard_normal, start, SEED)
    _, exact = MALA(1, step_size=0.8).run(standard_normal, start, SEED)
    assert float(free["acceptance"]) == pytest.approx(float(exact["acceptance"]), abs=0.01)


def test_acceptance_without_values_of_the_density_is_the_same_for_gaussians():
    """The trapezoidal rule is exact for them; values that are rounded must not be read."""
    start = tf.random.stateless_normal([1000, 2], SEED)
    sampler = SGLD(5, step_size=0.5, temperature=1.0)
    ends, exact = sampler.run(gaussian, start, SEED)

    def coarse(x):
        return gaussian(x) + tf.stop_gradient(100.0 * tf.sin(1e4 * x[:, 0]))

    ends_of_scores, by_scores = sampler.run(coarse, start, SEED, rounded=True)
    np.testing.assert_allclose(ends_of_scores, ends, rtol=1e-6)
    assert 0.5 < float(exact["acceptance"]) < 0.99
    assert float(by_scores["acceptance"]) == pytest.approx(float(exact["acceptance"]), abs=1e-5)


def test_a_suitable_step_size_moves_values_by_a_tenth_of_the_half_range():
    sampler = SGLD(20, temperature=1.0)
    scores = 20.0 * tf.constant([[3.0, 4.0], [0.0, 5.0]])
    low, high = sampler.step_size_bounds
    expected = 0.1 / np.sqrt(400 * (9 + 16 + 25) / 4)
    assert float(sampler.suitable_step_size(scores)) == pytest.approx(expected)
    assert float(sampler.suitable_step_size(1e6 * scores)) == pytest.approx(low)
    assert float(sampler.suitable_step_size(1e-6 * scores)) == pytest.approx(high)
    fixed = SGLD(20, step_size=1.0, noise=0.01)
    assert float(fixed.suitable_step_size(scores)) == pytest.approx(expected)
    assert float(fixed.suitable_step_size(1e-6 * scores)) == 1.0  # the paper's


@pytest.mark.parametrize("slope", [0.0, 100.0])
def test_stiffness_is_step_size_times_curvature_on_any_slope(slope):
    """f = slope x - k x² / 2 in all directions: chains that climb have the stiffness a k too."""
    sampler = SGLD(5, step_size=0.02, temperature=0.3)
    density = lambda x: tf.reduce_sum(slope * x - 0.5 * 7.0 * x**2, 1)  # noqa: E731
    _, stats = sampler.run(density, tf.zeros([4, 3]), SEED)
    assert float(stats["stiffness"]) == pytest.approx(0.02 * 7.0, rel=1e-3)


def test_bounds_are_moves_by_the_noise_of_a_run():
    """A flat density: the noise of all steps moves values by 0.05 and 0.5 half ranges."""
    for steps, temperature in ((2, 1.0), (20, 0.1)):
        sampler = SGLD(steps, temperature=temperature)
        for size, expected in zip(sampler.step_size_bounds, (0.05, 0.5)):
            flat = lambda x: tf.reduce_sum(0.0 * x, 1)  # noqa: E731
            ends, stats = sampler.run(flat, tf.zeros([2000, 5]), SEED, step_size=size)
            assert np.std(ends) == pytest.approx(expected, rel=0.03)  # standard error 0.7 %
            assert float(stats["displacement"]) == pytest.approx(np.std(ends), rel=1e-3)


def test_chains_depend_on_the_seed_only():
    sampler, x = SGLD(3, step_size=0.1), tf.zeros([4, 2])
    first, second = (sampler.run(gaussian, x, SEED)[0].numpy() for _ in range(2))
    other = sampler.run(gaussian, x, SEED + 1)[0].numpy()
    assert (first == second).all() and (first != other).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": -0.1}, "noise=-0.1"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"steps": 1}, "steps=1"),  # "auto" compares steps
        ({"noise": 0.01}, "noise=0.01"),  # "auto" would change the temperature
        ({"clip": 0}, "clip=0"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"dtype": "bfloat"}, "'bfloat'. Did you mean 'bfloat16'"),
    ],
)
def test_errors_quote_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        SGLD(**options)


def test_settings_of_version_0_1_are_read():
    """Tied noise had a temperature of 1; a tuned size with fixed noise stays what it was."""
    old = {"steps": 7, "step_size": 0.5, "noise": 0.1, "clip": None, "reuse": 1}
    expected = SGLD(7, 0.5, 0.1, temperature=1.0).get_config()
    assert SGLD.from_config(old).get_config() == expected
    tuned = SGLD.from_config({**old, "step_size": "auto"})
    assert float(tuned.step_size_at(tf.constant(0), tf.constant(0.3))) == pytest.approx(0.3)
    tied = SGLD.from_config({**old, "noise": "tied"})
    assert float(tied.noise_at(tf.constant(0.5))) == pytest.approx(1.0)
