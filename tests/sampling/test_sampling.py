"""Samplers against densities that are known in closed form."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from jem_tf import MALA, SGLD, GaussianMixture, Uniform

SEED = tf.constant([3, 5])
MEAN = np.array([1.0, -2.0], np.float32)
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]], np.float32)


def gaussian(x):
    centred = x - MEAN
    precision = tf.constant(np.linalg.inv(COVARIANCE))
    return -0.5 * tf.einsum("ni,ij,nj->n", centred, precision, centred)


def mixture(x):
    """0.3 N(-2, 1) + 0.7 N(2, 1), up to a constant."""
    parts = [tf.math.log(w) - 0.5 * (x[:, 0] - m) ** 2 for w, m in ((0.3, -2.0), (0.7, 2.0))]
    return tf.reduce_logsumexp(tf.stack(parts), axis=0)


def run(sampler, log_density, x, steps=None):
    return tf.function(lambda x: sampler.run(log_density, x, SEED, steps))(x)


SAMPLERS = [SGLD(600, step_size=0.02, noise="tied"), MALA(200, step_size=0.2)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=["sgld", "mala"])
def test_recovers_mean_and_covariance_of_a_gaussian(sampler):
    # 10 000 chains: standard errors 0.014 (mean) and about 0.03 (covariance); SGLD's own bias
    # at step size 0.02 is below 2 %. Five standard errors each.
    x, _ = run(sampler, gaussian, tf.zeros([10_000, 2]))
    np.testing.assert_allclose(x.numpy().mean(0), MEAN, atol=0.07)
    np.testing.assert_allclose(np.cov(x.numpy().T), COVARIANCE, atol=0.15)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=["sgld", "mala"])
def test_recovers_the_weights_of_a_mixture(sampler):
    # From equal shares of chains in both modes, the weights must move to 0.3 and 0.7: standard
    # error 0.008 with 3 000 chains, and as much for what 3 000 steps leave of the start.
    start = tf.constant(np.repeat([[-2.0], [2.0]], 1500, axis=0), tf.float32)
    x, _ = run(sampler, mixture, start, steps=3000)
    assert abs((x.numpy() < 0).mean() - _left_share()) < 0.035


def _left_share():
    return 0.3 * stats.norm.cdf(2) + 0.7 * stats.norm.cdf(-2)


def test_mala_passes_a_kolmogorov_smirnov_test_where_large_sgld_steps_fail():
    """The correction makes the sampler exact: at this step size SGLD variance is 67 % off."""
    density = lambda x: -0.5 * x[:, 0] ** 2  # noqa: E731
    start = tf.zeros([5000, 1])
    exact, stats_mala = run(MALA(100, step_size=0.8), density, start)
    biased, _ = run(SGLD(100, step_size=0.8, noise="tied"), density, start)
    assert stats.kstest(exact.numpy()[:, 0], "norm").pvalue > 0.01
    assert stats.kstest(biased.numpy()[:, 0], "norm").pvalue < 1e-4
    assert 0.3 < stats_mala["acceptance"] < 1.0


def test_mala_accepts_by_the_corrected_rule():
    """Acceptance equals the mean of min(1, p(x')q(x|x') / p(x)q(x'|x)), here by SciPy."""
    step_size, rng = 0.8, np.random.default_rng(0)
    x = rng.normal(size=200_000)
    spread = np.sqrt(2 * step_size)
    proposal = x - step_size * x + spread * rng.normal(size=x.size)
    q = lambda to, at: stats.norm.logpdf(to, at - step_size * at, spread)  # noqa: E731
    ratio = stats.norm.logpdf(proposal) + q(x, proposal) - stats.norm.logpdf(x) - q(proposal, x)
    expected = np.exp(np.minimum(0.0, ratio)).mean()
    start = tf.constant(x[:100_000, None], tf.float32)
    _, measured = run(MALA(1, step_size=step_size), lambda x: -0.5 * x[:, 0] ** 2, start)
    assert abs(measured["acceptance"] - expected) < 0.01  # standard error 0.0015


def test_sgld_step_is_the_papers_equation():
    x = tf.constant([[1.0, 2.0]])
    moved, _ = SGLD(1, step_size=0.5, noise=0).run(lambda x: -tf.reduce_sum(x**2, 1), x, SEED)
    np.testing.assert_allclose(moved, [[0.0, 0.0]])  # x - 0.5 * 2 x
    noisy, _ = SGLD(1, step_size=1e-9, noise=0.3).run(
        lambda x: tf.reduce_sum(x, 1), tf.zeros([1000, 10]), SEED
    )
    assert abs(noisy.numpy().std() - 0.3) < 0.01


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("seeds", ["one", "by row"])
def test_shares_side_by_side_end_where_all_together_do(rows, seeds):
    """The second share follows another density, as one with other labels would."""
    seed = SEED if seeds == "one" else tf.stack([tf.range(rows), tf.range(rows)], axis=1)
    sampler = SGLD(5, step_size=0.1, noise=0.3)
    start = tf.random.stateless_normal([rows, 2], SEED)
    half = rows // 2
    signs = tf.constant([1.0] * half + [-1.0] * (rows - half))
    together, told = sampler.run(lambda x: signs * gaussian(x), start, seed)
    shares = [gaussian, lambda x: -gaussian(x)]
    apart, also_told = tf.function(lambda x: sampler.run(shares, x, seed))(start)
    np.testing.assert_allclose(apart, together, rtol=1e-5)
    assert {k: float(v) for k, v in also_told.items()} == pytest.approx(
        {k: float(v) for k, v in told.items()}, rel=1e-4
    )


def test_clip_bounds_the_drift_of_a_step():
    x, _ = SGLD(1, step_size=10.0, noise=0, clip=0.1).run(
        lambda x: tf.reduce_sum(x * [5.0, -5.0], 1), tf.zeros([1, 2]), SEED
    )
    np.testing.assert_allclose(x, [[0.1, -0.1]])


def test_schedule_is_followed_along_the_chain():
    """Polynomial decay from 1 to 0 over 4 steps adds 1 + 3/4 + 1/2 + 1/4 times a unit slope."""
    decay = keras.optimizers.schedules.PolynomialDecay(1.0, 4, 0.0)
    x, _ = SGLD(4, step_size=decay, noise=0).run(lambda x: x[:, 0], tf.zeros([1, 1]), SEED)
    np.testing.assert_allclose(x, [[2.5]])
    assert SGLD.langevin(steps=4).noise == "tied"


def test_self_tuning_step_size_follows_the_gap_and_stays_bounded():
    sampler = SGLD()

    def tune(size, gap, climbing=1.0):
        stats = {"climbing": tf.constant(climbing)}
        return float(sampler.tune(tf.constant(size), tf.constant(gap), stats))

    np.testing.assert_allclose(tune(1.0, -1e6), np.exp(0.02), rtol=1e-5)  # chains lag
    np.testing.assert_allclose(tune(1.0, 1e6), np.exp(-0.02), rtol=1e-5)  # chains overshoot
    # Chains that lag and go up and down at random step across the peaks.
    np.testing.assert_allclose(tune(1.0, -1e6, 0.5), np.exp(-0.02), rtol=1e-5)
    assert tune(1.0, -1e6, 0.97) == pytest.approx(1.0)
    np.testing.assert_allclose(tune(1.0, 1e6, 0.2), np.exp(-0.02), rtol=1e-5)
    assert tune(10.0, -1e6) == 10.0
    assert tune(1e-3, 1e6) == pytest.approx(1e-3)
    assert tune(0.5, float("nan")) == 0.5
    mala = MALA()
    more = mala.tune(tf.constant(1e-3), tf.constant(0.0), {"acceptance": tf.constant(0.9)})
    assert more > 1e-3


def test_same_seed_same_chain_other_seed_other_chain():
    sampler, x = SGLD(3, step_size=0.1), tf.zeros([4, 2])
    one, again = (sampler.run(gaussian, x, SEED)[0].numpy() for _ in range(2))
    other = sampler.run(gaussian, x, SEED + 1)[0].numpy()
    assert (one == again).all() and (one != other).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"steps": -3}, "steps=-3"),
        ({"steps": 2.5}, "steps=2.5"),
        ({"noise": -0.1}, "noise=-0.1"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"step_size": 0.0}, "step_size=0.0"),
        ({"step_size": "big"}, "step_size='big'"),
        ({"clip": 0}, "clip=0"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        SGLD(**options)


@pytest.mark.parametrize(
    "sampler",
    [SGLD(7, 0.5, 0.1, 0.2), SGLD(), SGLD.langevin(9), MALA(5, 1e-2)],
    ids=["numbers", "auto", "schedule", "mala"],
)
def test_settings_round_trip(sampler):
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(sampler))
    assert copy.get_config() == sampler.get_config()


def test_uniform_start_covers_the_range_of_each_feature():
    data = np.random.default_rng(0).uniform([0, -50], [1, 150], size=(2000, 2)).astype(np.float32)
    start = Uniform()
    start.adapt(data)
    x = start.draw(20_000, SEED).numpy()
    np.testing.assert_allclose(x.min(0), data.min(0), atol=0.05)
    np.testing.assert_allclose(x.mean(0), (data.min(0) + data.max(0)) / 2, atol=2.0)
    np.testing.assert_allclose(start.scale, (data.max(0) - data.min(0)) / 2)


@pytest.mark.parametrize("shape", [(6,), (5, 3), (4, 4, 2)])
def test_starts_have_the_shape_of_the_data(shape):
    data = np.random.default_rng(0).normal(size=(50, *shape)).astype(np.float32)
    for start in (Uniform(), GaussianMixture()):
        start.adapt(data, np.arange(50) % 2, 2)
        assert start.draw(7, SEED).shape == (7, *shape)


def test_a_constant_feature_has_unit_scale():
    start = Uniform()
    start.adapt(np.array([[1.0, 5.0], [3.0, 5.0]], np.float32))
    np.testing.assert_allclose(start.scale, [1.0, 1.0])


@pytest.mark.parametrize("rank", [64, 1])
def test_gaussian_mixture_start_has_each_classs_moments(rank):
    """Full covariance when the rank allows, else the variances and the leading direction."""
    rng = np.random.default_rng(0)
    factor = np.array([[1.0, 0.0, 0.0], [2.0, 0.5, 0.0], [0.0, 0.0, 0.2]])
    data = (rng.normal(size=(2000, 3)) @ factor.T).astype(np.float32)
    y = np.arange(2000) % 2
    data[y == 1] += 10.0
    start = GaussianMixture(rank)
    start.adapt(data, y, 2)
    x = start.draw(40_000, SEED, tf.ones(40_000, tf.int32)).numpy()
    expected = np.cov(data[y == 1].T)
    np.testing.assert_allclose(x.mean(0), data[y == 1].mean(0), atol=0.06)  # 5 standard errors
    compare = np.diag if rank == 1 else np.asarray
    np.testing.assert_allclose(compare(np.cov(x.T)), compare(expected), atol=0.2)
    without_labels = start.draw(2000, SEED).numpy()
    assert abs((without_labels[:, 2] > 5).mean() - 0.5) < 0.06


def test_steps_across_a_peak_are_told_from_steps_up_to_it():
    """log p(x) = -x² / 2 from x = 1: a step of 2.5 goes to -1.5, a step of 0.5 to 0.5."""
    density = lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1)  # noqa: E731
    start = tf.ones([8, 1])
    for step_size, expected in ((2.5, 0.0), (0.5, 1.0)):
        sampler = SGLD(4, step_size, noise=0)
        _, stats = sampler.run(density, start, tf.constant([0, 0]))
        assert float(stats["climbing"]) == expected
