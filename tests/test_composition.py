"""Compositions against closed forms and grids: products and mixtures of Gaussians."""

import keras
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import jem_tf
from jem_tf.composition import Exclusion, Expert

SIDE = np.linspace(-6, 6, 121, dtype=np.float32)
GRID = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(-1, 2)
CELL = (SIDE[1] - SIDE[0]) ** 2


@keras.saving.register_keras_serializable("jem_tf_tests")
class Squares(keras.layers.Layer):
    """Logits -(x - m_k)^2 / (2 s^2), summed over the values: a Gaussian for each class."""

    def __init__(self, means, spread, **kwargs):
        super().__init__(**kwargs)
        self.means, self.spread = np.asarray(means, np.float32), spread

    def call(self, x):
        offset = keras.ops.expand_dims(x, 1) - self.means
        return -keras.ops.sum(offset**2, -1) / (2 * self.spread**2)


def make_gaussians(means, spread, temperature=1.0, **options):
    """Gaussians of one or more classes; a single one is there twice, as a JEM has two classes."""
    means = means if len(means) > 1 else 2 * means
    backbone = keras.Sequential([keras.Input((2,)), Squares(means, spread)])
    options = {"step_size": 0.01, "temperature": temperature, **options}
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(10, **options), seed=0)
    model.adapt(np.array([[-4.0, -4.0], [4.0, 4.0]], np.float32))
    return model


def normalised(values):
    """Log densities on the grid, up to a constant, as those of a density on the grid."""
    return values - logsumexp(values) - np.log(CELL)


def gaussian(mean, variance):
    return multivariate_normal(mean, variance).logpdf(GRID)


def share_within(log_p, centre, radius):
    """The mass within a disc, by summing over the grid."""
    inside = np.linalg.norm(GRID - centre, axis=1) < radius
    return np.exp(normalised(log_p))[inside].sum() * CELL


def test_energies_are_weighted_sums():
    first = make_gaussians([[0, 0], [1, 1]], 1.0)
    second = make_gaussians([[2, 0], [0, 2], [1, 0]], 0.5)
    both = jem_tf.compose([first, second], [1.0, 0.3])
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    expected = first.energy(x) + 0.3 * second.energy(x)
    np.testing.assert_allclose(both.energy(x), expected, rtol=1e-5)
    of_classes = first.energy(x, np.ones(20, int)) + 0.3 * second.energy(x, np.full(20, 2))
    np.testing.assert_allclose(both.energy(x, (1, 2)), of_classes, rtol=1e-5)


def test_samples_are_those_of_the_product():
    """N(a, s²) N(b, t²) is proportional to N(m, v). Unadjusted steps of size h have the variance
    v / (1 - h / 2v), with x in units of 4. With 4 000 chains the standard error of a mean is 0.01,
    that of a variance 2 %."""
    first = make_gaussians([[0, 0], [1, -1]], 1.0)
    second = make_gaussians([[2, 1], [-2, 0]], 0.5)
    both = jem_tf.compose([first, second])
    samples = both.sample(4000, labels=(1, 0), steps=300, seed=1)
    precision = 1 / 1.0 + 1 / 0.25
    mean = (np.array([1, -1]) + np.array([2, 1]) / 0.25) / precision
    np.testing.assert_allclose(samples.mean(0), mean, atol=0.05)
    variance = 1 / precision / (1 - 0.01 * 4**2 * precision / 2)
    np.testing.assert_allclose(samples.var(0), variance, rtol=0.08)
    np.testing.assert_array_equal(samples, both.sample(4000, labels=(1, 0), steps=300, seed=1))


def test_errors_say_what_does_not_fit():
    two, three = (make_gaussians([[0, 0], [1, 1], [2, 2]][:n], 1.0) for n in (2, 3))
    with pytest.raises(ValueError, match=r"models with \[2, 3\] classes"):
        jem_tf.compose([two, three]).sample(2, labels=1)
    with pytest.raises(ValueError, match="between 0 and 1"):
        jem_tf.compose([two, three]).energy(np.zeros((1, 2)), (2, 0))
    with pytest.raises(ValueError, match="2 models, weights"):
        jem_tf.compose([two, three], [1.0])
    other_range = make_gaussians([[0, 0], [1, 1]], 1.0)
    other_range.adapt(np.array([[0.0, 0.0], [1.0, 1.0]], np.float32))
    with pytest.raises(ValueError, match="same range"):
        jem_tf.compose([two, other_range])
    wide = jem_tf.JEM(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))
    with pytest.raises(ValueError, match=r"same inputs.*\(2,\), \(3,\)"):
        jem_tf.compose([two, wide])


def test_a_product_adds_precisions():
    """With weights, N(a, s²) and N(b, t²) have the precision w / s² + v / t². Tolerance: of float32
    energies of up to 600."""
    first, second = Expert(make_gaussians([[0, 1]], 1.0)), make_gaussians([[1, -1]], 0.7)
    product = first**0.5 & second
    precision = 0.5 + 1 / 0.49
    mean = (0.5 * np.array([0, 1]) + np.array([1, -1]) / 0.49) / precision
    exact = gaussian(mean, 1 / precision)
    found = normalised(product.log_density(GRID))
    np.testing.assert_allclose(found, exact, atol=2e-3)
    weighted = jem_tf.compose([first, second], [0.5, 1.0])
    np.testing.assert_array_equal(weighted.log_density(GRID), product.log_density(GRID))
    assert (product & first).numbers == [0.5, 1.0, 1.0]  # a product in a product is one product


@pytest.mark.parametrize(
    ("options", "temperature"),
    [({"temperature": 0.3}, 0.3), ({"noise": 0.1, "step_size": 0.02}, 0.25)],
    ids=["tied noise", "fixed noise"],
)
def test_a_model_of_temperature_t_has_the_density_exp_f_over_t(options, temperature):
    """Logits -x² / 2 s² are those of N(0, T s²). A product of two temperatures adds log p, in nats;
    its energy is in the unit of the first model."""
    cool = Expert(make_gaussians([[0, 0]], 1.0, **options))
    warm = make_gaussians([[1, 0]], 1.0)
    assert cool.temperature == pytest.approx(temperature, rel=1e-6)
    np.testing.assert_allclose(
        normalised(cool.log_density(GRID)), gaussian([0, 0], temperature), atol=5e-3
    )
    product = cool & warm
    precision = 1 / temperature + 1
    exact = gaussian([1 / precision, 0], 1 / precision)
    np.testing.assert_allclose(normalised(product.log_density(GRID)), exact, atol=5e-3)
    expected = -temperature * product.log_density(GRID)
    np.testing.assert_allclose(product.energy(GRID), expected, rtol=1e-6)


def test_chains_of_a_product_of_two_temperatures():
    """As for one temperature: the variance of unadjusted steps, where a step is h T in nats. The
    standard error of a variance of 4 000 chains is 2 %."""
    cool = Expert(make_gaussians([[0, 0]], 1.0, temperature=0.25))
    samples = (cool & make_gaussians([[1, 0]], 1.0)).sample(4000, steps=400, seed=2)
    precision = 1 / 0.25 + 1
    np.testing.assert_allclose(samples.mean(0), [1 / precision, 0], atol=0.04)
    variance = 1 / precision / (1 - 0.01 * 0.25 * 4**2 * precision / 2)
    np.testing.assert_allclose(samples.var(0), variance, rtol=0.08)


@pytest.mark.parametrize("temperature", [1.0, 0.2])
@pytest.mark.parametrize("label", [1, None])
def test_log_z_of_gaussians(label, temperature):
    """Z of one class is 2 pi T s²; two classes with a distance d between their means overlap for
    T != 1, so that the grid is exact there. Tolerance: four standard errors, and 0.02 nats."""
    expert = Expert(make_gaussians([[-1, 0], [1, 1]], 0.8, temperature), label)
    estimate = expert.log_z()
    exact = logsumexp(expert.log_density(GRID)) + np.log(CELL)
    if label is not None:
        assert exact == pytest.approx(np.log(2 * np.pi * temperature * 0.8**2), abs=1e-3)
    assert estimate.value == pytest.approx(exact, abs=4 * estimate.error + 0.02)
    assert estimate.error < 0.1 and estimate.effective > 50
    assert expert.log_z() is estimate  # estimated once


def test_a_mixture_has_the_shares_that_are_asked_for():
    """Z of the parts differs by a factor of 12.5. Tolerance of the density: that of log Z, 0.05; of
    the share of 4 000 chains: four standard errors, 0.03."""
    wide = make_gaussians([[-3, 0]], 1.0)
    narrow = make_gaussians([[3, 0], [0, 3]], 0.4, step_size=0.002)
    either = 0.3 * Expert(wide) | 0.7 * Expert(narrow, label=0)
    exact = np.logaddexp(np.log(0.3) + gaussian([-3, 0], 1), np.log(0.7) + gaussian([3, 0], 0.16))
    found = either.log_density(GRID)
    np.testing.assert_allclose(found, exact, atol=0.05)
    assert either.log_z().value == 0.0
    samples = either.sample(4000, steps=200, seed=3)
    right = np.linalg.norm(samples - [3, 0], axis=1) < 2
    assert right.mean() == pytest.approx(0.7, abs=0.03)
    np.testing.assert_allclose(samples[right].mean(0), [3, 0], atol=0.03)
    np.testing.assert_allclose(samples[~right].mean(0), [-3, 0], atol=0.15)


def test_shares_of_nested_mixtures():
    a, b, c = (Expert(make_gaussians([[m, 0]], 0.5)) for m in (-3, 0, 3))
    assert (a | b | c).shares == pytest.approx([1 / 3] * 3)
    assert (a | 2 * b | c).shares == pytest.approx([0.25, 0.5, 0.25])
    nested = 0.5 * (a | b) | 0.5 * c
    assert nested.shares == pytest.approx([0.5, 0.5])
    samples = nested.sample(2000, steps=200, seed=0)
    counts = [(np.abs(samples[:, 0] - m) < 1.5).mean() for m in (-3, 0, 3)]
    np.testing.assert_allclose(counts, [0.25, 0.25, 0.5], atol=0.05)  # four standard errors


def test_what_is_excluded_is_avoided_and_bounded():
    """Against the formula on the grid, and samples against its mass in a disc: 4 000 chains have a
    standard error of 0.007 there, and unadjusted steps a bias."""
    wanted, unwanted = Expert(make_gaussians([[0, 0]], 1.0)), Expert(make_gaussians([[1, 0]], 0.4))
    without = wanted & Exclusion(unwanted, level=-4.0)
    log_p, log_c = wanted.log_density(GRID), unwanted.log_density(GRID)
    exact = log_p - np.log1p(np.exp(log_c + 4.0))
    np.testing.assert_allclose(without.log_density(GRID), exact, atol=1e-3)
    assert (without.log_density(GRID) <= log_p + 1e-6).all()
    assert np.isfinite(without.log_density(1e3 * GRID)).all()
    strongly = wanted & Exclusion(unwanted, level=-4.0) ** 2
    shares = [share_within(part.log_density(GRID), [1, 0], 0.6) for part in (wanted, without)]
    assert shares[1] < 0.4 * shares[0]
    assert share_within(strongly.log_density(GRID), [1, 0], 0.6) < 0.3 * shares[1]
    samples = without.sample(4000, steps=300, seed=4)
    near = (np.linalg.norm(samples - [1, 0], axis=1) < 0.6).mean()
    assert near == pytest.approx(shares[1], abs=0.03)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_without_a_class_are_the_other_classes(temperature):
    """log(1 - p(y | x)) / T against SciPy, also where p(y | x) rounds to 1; and samples: the wanted
    Gaussian lies half in the part of the class that is not wanted."""
    classes = make_gaussians([[4, 0], [-4, 0], [-4, 3]], 0.5, temperature)
    logits = classes.predict(GRID, verbose=0).astype(np.float64)
    expected = logsumexp(logits[:, 1:], axis=1) - logsumexp(logits, axis=1)
    found = (~Expert(classes, label=0)).log_density(GRID)
    np.testing.assert_allclose(found, expected / temperature, rtol=1e-4, atol=1e-3)
    assert expected.min() < -100 and found.max() <= 1e-3
    without = Expert(make_gaussians([[0, 0]], 1.0, temperature)) & ~Expert(classes, label=0)
    samples = without.sample(200, steps=500, seed=0)
    assert (samples[:, 0] > 0.3).mean() < 0.05  # half of them without the exclusion


def test_the_level_of_an_exclusion_is_exceeded_by_most_samples():
    """Of a Gaussian in the plane, 99 % have log p - max log p > -log 100. The quantile of 256
    samples has a standard error of 0.6, and unadjusted steps widen the density."""
    excluded = ~Expert(make_gaussians([[1, 0]], 1.0))
    assert excluded.level == pytest.approx(np.log(2) - np.log(100), abs=2.0)


def test_one_of_two_and_not_a_third():
    """(a | b) & ~c: c covers a half of b. Shares and density against the grid."""
    a, b = Expert(make_gaussians([[-3, 0]], 0.6)), Expert(make_gaussians([[3, 0]], 0.6))
    c = Expert(make_gaussians([[3, 2]], 0.8))
    nested = (a | b) & Exclusion(c, level=-4.0)
    mixture = np.logaddexp(gaussian([-3, 0], 0.36), gaussian([3, 0], 0.36))
    exact = normalised(mixture - np.log1p(np.exp(c.log_density(GRID) + 4.0)))
    np.testing.assert_allclose(normalised(nested.log_density(GRID)), exact, atol=0.05)
    samples = nested.sample(1000, steps=200, seed=5)
    share = share_within(exact, [3, 0], 3)
    assert share < 0.45
    assert (samples[:, 0] > 0).mean() == pytest.approx(share, abs=0.06)  # four standard errors
    order = [expert.model for expert in nested.experts()]
    assert order == [a.model, b.model, c.model]
    first_is_wanted = Exclusion(c, level=-4.0) & b
    assert first_is_wanted.first is b


def test_labels_are_those_of_the_experts_or_given_later():
    means = [[-2, 0], [2, 0], [0, 2]]
    model, other = make_gaussians(means, 1.0), make_gaussians(means, 0.5)
    later = Expert(model) & ~Expert(other)
    now = Expert(model, label=2) & ~Expert(other, label=0)
    np.testing.assert_allclose(later.energy(GRID, labels=(2, 0)), now.energy(GRID), rtol=1e-5)
    kept = now.energy(GRID, labels=(None, 1))
    expected = (Expert(model, label=2) & ~Expert(other, label=1)).energy(GRID)
    np.testing.assert_allclose(kept, expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"Give 2 classes or one.*\(1, 2, 0\)"):
        later.energy(GRID, labels=(1, 2, 0))
    with pytest.raises(ValueError, match=r"between 0 and 2\. Received: 3"):
        Expert(model, label=3)


def test_a_poor_estimate_of_log_z_says_so():
    """Two transitions are too few for two narrow classes far apart; more of them are enough."""
    expert = Expert(make_gaussians([[-3, -3], [3, 3]], 0.3, step_size=0.003))
    with pytest.warns(UserWarning, match=r"uncertain: .* effective of 20 chains"):
        expert.log_z(chains=20, steps=2)
    with pytest.raises(ValueError, match="`step_size` of its sampler"):
        Expert(make_gaussians([[-3, -3], [3, 3]], 0.05, step_size=0.1)).log_z()


def test_chains_of_a_model_without_a_temperature_of_its_own():
    """An objective without chains learns exp(f), whatever the sampler's temperature is. The
    variance 1 + 1 % by unadjusted steps; 4 000 chains, standard error 2 %."""
    sampler = jem_tf.SGLD(10, step_size=0.01, temperature=0.1)
    backbone = keras.Sequential([keras.Input((2,)), Squares([[0, 0], [0, 0]], 1.0)])
    model = jem_tf.JEM(backbone, sampler=sampler, objective="cross_entropy", seed=0)
    model.adapt(np.array([[-4.0, -4.0], [4.0, 4.0]], np.float32))
    samples = Expert(model).sample(4000, steps=3000, seed=0)
    np.testing.assert_allclose(samples.var(0), 1.0, rtol=0.1)


def test_exclusion_of_a_class_with_fixed_noise():
    """The paper's sampler has fixed noise, whose temperature is read outside of the graph."""
    classes = make_gaussians([[4, 0], [-4, 0]], 1.0, noise=0.1)
    without = Expert(make_gaussians([[0, 0]], 1.0)) & ~Expert(classes, label=0)
    assert np.isfinite(without.sample(20, steps=20, seed=0)).all()


def test_a_mixture_uses_the_sampler_of_what_is_wanted():
    a, b, c = (Expert(make_gaussians([[k, 0]], 1.0)) for k in range(3))
    assert ((~a & b) | c).first is b


def test_a_learned_log_z_is_used():
    backbone = keras.Sequential([keras.Input((2,)), Squares([[0, 0], [0, 0]], 1.0)])
    model = jem_tf.JEM(backbone, objective="nce", sampler=jem_tf.SGLD(10, temperature=0.1))
    model.adapt(np.array([[-4.0, -4.0], [4.0, 4.0], [1.0, 0.0]], np.float32))
    assert Expert(model).temperature == 1.0  # of exp(f), whatever the sampler's is
    assert Expert(model).log_z().value == float(model.objective.log_z)


def test_errors_of_operators():
    a, b = (Expert(make_gaussians([[m, 0]], 1.0)) for m in (0, 1))
    with pytest.raises(ValueError, match=r"b & ~a. Received: ~Expert"):
        (~a).sample(2)
    with pytest.raises(ValueError, match="~a alone is none"):
        a | ~b
    with pytest.raises(ValueError, match=r"weight=-1\.0"):
        a**-1 & b
    with pytest.raises(ValueError, match=r"share=0\.0"):
        0.0 * a | b
    with pytest.raises(TypeError, match=r"models and compositions of them\. Received: float"):
        a & 0.5
    with pytest.raises(ValueError, match="`fit` or `adapt`"):
        Expert(jem_tf.JEM(keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])))
    with pytest.raises(ValueError, match="steps=0"):
        a.sample(2, steps=0)
