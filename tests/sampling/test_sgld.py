"""SGLD against densities with known moments, and its update against the equation."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf import SGLD

from .densities import SEED, check_gaussian, check_mixture, gaussian


def test_chains_recover_mean_and_covariance_of_a_gaussian():
    check_gaussian(SGLD(600, step_size=0.02, noise="tied"))  # the bias of this size is below 2 %


def test_chains_recover_the_weights_of_a_mixture():
    check_mixture(SGLD(600, step_size=0.02, noise="tied"))


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


def test_a_self_tuning_step_size_follows_the_gap_and_stays_bounded():
    sampler = SGLD()

    def tune(size, gap, climbing=1.0):
        diagnostics = {"climbing": tf.constant(climbing)}
        return float(sampler.tune(tf.constant(size), tf.constant(gap), diagnostics))

    np.testing.assert_allclose(tune(1.0, -1e6), np.exp(0.02), rtol=1e-5)  # chains are below
    np.testing.assert_allclose(tune(1.0, 1e6), np.exp(-0.02), rtol=1e-5)  # chains are above
    # Chains that are below and move up and down at random step across the peaks.
    np.testing.assert_allclose(tune(1.0, -1e6, 0.5), np.exp(-0.02), rtol=1e-5)
    assert tune(1.0, -1e6, 0.97) == pytest.approx(1.0)
    np.testing.assert_allclose(tune(1.0, 1e6, 0.2), np.exp(-0.02), rtol=1e-5)
    assert tune(10.0, -1e6) == 10.0
    assert tune(1e-3, 1e6) == pytest.approx(1e-3)
    assert tune(0.5, float("nan")) == 0.5


def test_a_suitable_step_size_moves_values_by_a_tenth_of_the_half_range():
    sampler = SGLD()
    steep, flat = tf.constant([[3.0, 4.0], [0.0, 5.0]]), tf.constant([[0.01, 0.01]])
    expected = 0.1 / np.sqrt((9 + 16 + 25) / 4)
    assert float(sampler.suitable_step_size(steep)) == pytest.approx(expected)
    assert float(sampler.suitable_step_size(flat)) == 1.0  # the paper's
    assert float(sampler.suitable_step_size(1e6 * steep)) == pytest.approx(1e-3)  # the bound


def test_chains_depend_on_the_seed_only():
    sampler, x = SGLD(3, step_size=0.1), tf.zeros([4, 2])
    first, second = (sampler.run(gaussian, x, SEED)[0].numpy() for _ in range(2))
    other = sampler.run(gaussian, x, SEED + 1)[0].numpy()
    assert (first == second).all() and (first != other).any()


def test_climbing_distinguishes_steps_across_a_peak_from_steps_up_to_it():
    """log p(x) = -x² / 2 from x = 1: a step of 2.5 leads to -1.5, a step of 0.5 to 0.5."""
    start = tf.ones([8, 1])
    for step_size, expected in ((2.5, 0.0), (0.5, 1.0)):
        sampler = SGLD(4, step_size, noise=0)
        _, diagnostics = sampler.run(lambda x: -0.5 * x[:, 0] ** 2, start, tf.constant([0, 0]))
        assert float(diagnostics["climbing"]) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": -0.1}, "noise=-0.1"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"clip": 0}, "clip=0"),
    ],
)
def test_errors_quote_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        SGLD(**options)


def test_settings_of_version_0_1_are_read():
    config = {**SGLD(7, 0.5).get_config(), "reuse": 1}
    assert SGLD.from_config(config).get_config() == SGLD(7, 0.5).get_config()
