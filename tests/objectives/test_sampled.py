"""Joint, factored and IGEBM: the gradient with exact samples is that of the likelihood."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

import jem_tf
from jem_tf.objectives import IGEBM, Factored, Joint
from jem_tf.objectives.sampled import Samples
from jem_tf.sampling.replay import Draw

from .toy import (
    CLASSES,
    GRID,
    batch_of,
    draw_data,
    integrate,
    make_toy_model,
    quantiles,
    value_and_gradient,
)


def exact_samples(model, by_class, n=3000):
    """Quantiles of the exact density, or of that of each class, as the ends of chains."""
    logits = model.predict(GRID, verbose=0)
    if not by_class:
        x, labels = quantiles(logsumexp(logits, axis=1), n), None
    else:
        x = np.concatenate([quantiles(logits[:, k], n) for k in range(CLASSES)])
        labels = tf.constant(np.repeat(np.arange(CLASSES), n).astype(np.int32))
    slots = tf.range(len(x))
    return Samples(tf.constant(x), Draw(tf.constant(x), slots, tf.zeros(len(x)), labels), {})


@pytest.mark.parametrize(
    "objective",
    [
        Joint(weight=1.0, lag=1e9),
        Factored(lag=1e9),
        IGEBM(lag=1e9, energy_penalty=0.0),
        IGEBM(conditional=True, lag=1e9, energy_penalty=0.0),
    ],
    ids=["joint", "factored", "igebm", "igebm by class"],
)
def test_with_exact_samples_the_gradient_is_that_of_the_likelihood(objective):
    """3 000 quantiles as samples, against log Z integrated over the grid."""
    model = make_toy_model(objective=objective)
    x, y = draw_data()
    batch = batch_of(model, x, y)

    def negative_log_likelihood():
        f, grid = model.backbone(x), model.backbone(GRID)
        rows = tf.range(len(x))
        f_label = tf.gather_nd(f, tf.stack([rows, tf.constant(y, tf.int32)], 1))
        if objective.by_class:
            return -tf.reduce_mean(f_label - tf.gather(integrate(grid), y))
        marginal = tf.reduce_logsumexp(f, axis=1)
        loss = -tf.reduce_mean(marginal) + integrate(tf.reduce_logsumexp(grid, axis=1))
        return loss + tf.reduce_mean(marginal - f_label) if objective.classifies else loss

    samples = exact_samples(model, objective.by_class)
    loss = lambda: objective.loss(model, batch, samples).loss  # noqa: E731
    _, gradient = value_and_gradient(model, loss)
    _, expected = value_and_gradient(model, negative_log_likelihood)
    np.testing.assert_allclose(gradient, expected, atol=2e-3 * np.abs(expected).max())


def test_the_penalty_is_the_mean_square_of_log_densities():
    x, y = draw_data()
    losses = []
    for penalty in (0.0, 0.5):
        keras.utils.set_random_seed(0)
        objective = Joint(energy_penalty=penalty)
        model = make_toy_model(objective=objective)
        samples = exact_samples(model, by_class=False, n=50)
        batch = batch_of(model, x, y)
        losses.append(float(objective.loss(model, batch, samples).loss))
    squares = sum((model.energy(rows) ** 2).mean() for rows in (x, samples.x.numpy()))
    assert losses[1] - losses[0] == pytest.approx(0.5 * squares, rel=1e-4)


def test_samples_far_below_the_data_do_not_count():
    """Full weight up to `lag` standard deviations of f below the data, none from twice as far."""
    objective = Joint(weight=1.0, lag=2.0)
    model = make_toy_model(objective=objective, sampler=jem_tf.SGLD(2, temperature=1.0))
    x, y = draw_data()
    f_data = -model.energy(x)
    spread = np.clip(f_data.std(), np.sqrt(0.5), 5.0)  # of one dimension
    points = np.array([[0.0], [-3.0], [8.0]], np.float32)
    f = -model.energy(points)
    trust = np.clip(2 - (f_data.mean() - f) / (2.0 * spread), 0, 1)
    assert trust[0] == 1 and trust[2] == 0
    samples = Samples(tf.constant(points), Draw(tf.constant(points), None, None, None), {})
    terms = objective.loss(model, batch_of(model, x, y), samples)
    logits = model.predict(x, verbose=0)
    cross_entropy = (logsumexp(logits, axis=1) - logits[np.arange(60), y]).mean()
    expected = cross_entropy + (trust * f).mean() - trust.mean() * f_data.mean()
    assert float(terms.loss) == pytest.approx(expected, rel=1e-4)
    relative_gap = (f.mean() - f_data.mean()) / spread
    vitals = {"trusted": trust.mean(), "relative_gap": relative_gap}
    assert {k: float(terms.vitals[k]) for k in vitals} == pytest.approx(vitals, rel=1e-4)


@pytest.mark.parametrize(("dimensions", "tolerance"), [(2, 0.02), (64, 2e-3), (3072, 2e-3)])
def test_trust_does_not_move_the_fixed_point(dimensions, tolerance):
    """Data and exact samples of N(0, I): nothing to learn, whatever the dimension.

    log p(x) has a standard deviation of sqrt(D / 2), 39 nats for D = 3072. With a `lag` of 10 nats,
    4 % of the samples counted, and the precision at rest was .947 instead of 1. In two dimensions
    log p(x) has an exponential tail: e^-5 of the samples are more than 4 deviations below the mean.
    """
    rows = 2000

    class Gaussian(keras.layers.Layer):
        def build(self, shape):
            self.log_precision = self.add_weight(shape=(), initializer="zeros")

        def call(self, x):
            f = -0.5 * tf.exp(self.log_precision) * tf.reduce_sum(x**2, 1, keepdims=True)
            return tf.concat([f, f], axis=1)

    backbone = keras.Sequential([keras.Input((dimensions,)), Gaussian()])
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(temperature=1.0))
    model.compile("sgd")
    x, samples = np.random.default_rng(0).normal(size=(2, rows, dimensions)).astype(np.float32)
    batch = batch_of(model, x, np.zeros(rows, np.int64))
    ends = Samples(tf.constant(samples), Draw(tf.constant(samples), None, None, None), {})
    loss = lambda: model.objective.loss(model, batch, ends).loss  # noqa: E731
    _, gradient = value_and_gradient(model, loss)
    exact = 0.5 * ((x**2).sum(1).mean() - (samples**2).sum(1).mean())  # all samples count
    # The second derivative is D / 2: the distance of the fixed point from that of all samples.
    assert abs(gradient[0] - exact) / (dimensions / 2) < tolerance
    assert float(model.objective.loss(model, batch, ends).vitals["trusted"]) > 0.99


@pytest.mark.slow
def test_stuck_chains_do_not_make_the_energies_diverge(make_model, blobs):
    """Chains that cannot move, and a loss that lowers the density where they are; no labels."""
    x, y = blobs[0], np.full(300, -1)

    def train(lag):
        keras.utils.set_random_seed(1)
        model = make_model(
            sampler=jem_tf.SGLD(1, step_size=1e-9, noise=0),
            start=jem_tf.Uniform(),
            objective=Joint(weight=1.0, lag=lag),
            optimizer=keras.optimizers.SGD(0.05),
        )
        logs = model.fit(x, y, batch_size=100, epochs=60, verbose=0).history
        return logs["energy_samples"][-1] - logs["energy_data"][-1]

    assert train(lag=1e9) > 100  # diverges, while the loss looks good
    assert train(lag=4.0) < 20  # the spread is at most 5 nats, and grows no further


def test_errors_quote_wrong_settings(make_model):
    for name in ("weight", "lag", "energy_penalty"):
        with pytest.raises(ValueError, match=f"{name}=-1"):
            Joint(**{name: -1})
    with pytest.raises(ValueError, match="needs chains that belong to classes"):
        make_model(objective=Factored(), buffer=jem_tf.ReplayBuffer(64))


def ready_model(objective, **options):
    """A toy model whose buffer is filled, and its batch of 60 rows."""
    model = make_toy_model(objective=objective, sampler=jem_tf.SGLD(2), **options)
    x, y = draw_data()
    model.adapt(x, y)
    model.buffer.initialise(model.start, tf.constant([1, 2]), 60, 1, np.ones(CLASSES) / CLASSES)
    return model, batch_of(model, x, y)


def density_gap(model, data, samples):
    f_data, f_samples = (
        logsumexp(model.predict(np.asarray(x), verbose=0), axis=1).mean() for x in (data, samples)
    )
    return f_samples - f_data


@pytest.mark.parametrize(("step", "factor"), [(0, 0.01), (24, 0.25), (99, 1.0), (500, 1.0)])
def test_the_weight_rises_over_the_ramp(step, factor):
    model, batch = ready_model(Joint(weight=0.5, lag=1e9, ramp=100))
    model.progress.assign(step=np.int64(step))
    negatives = model.objective.negatives(model, batch, [tf.constant([1, 2])] * 2)
    loss = float(model.objective.loss(model, batch, negatives).loss)
    cross_entropy = float(model.objective.cross_entropy(model, batch, model.logits(batch.x))[0])
    gap = density_gap(model, batch.x, negatives.x)
    assert loss - cross_entropy == pytest.approx(0.5 * factor * gap, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("two_passes", [False, True])
def test_fewer_chains_than_rows_contrast_as_many_rows_if_that_saves_work(two_passes):
    """Classification is of all rows. The density of the other rows costs nothing in one pass."""
    augmentation = keras.layers.Identity() if two_passes else None
    model, batch = ready_model(Joint(lag=1e9, chain_ratio=0.3), augmentation=augmentation)
    negatives = model.objective.negatives(model, batch, [tf.constant([1, 2])] * 2)
    assert negatives.x.shape == (18, 1)
    terms = model.objective.loss(model, batch, negatives)
    cross_entropy = float(model.objective.cross_entropy(model, batch, model.logits(batch.x))[0])
    gap = density_gap(model, batch.x[:18] if two_passes else batch.x, negatives.x)
    assert float(terms.loss) == pytest.approx(cross_entropy + 0.2 * gap, rel=1e-4)
    assert terms.logits.shape == (60, CLASSES)


def test_fewer_chains_train_an_ebm_without_a_classifier():
    model, batch = ready_model(IGEBM(lag=1e9, energy_penalty=0.0, chain_ratio=0.5))
    negatives = model.objective.negatives(model, batch, [tf.constant([1, 2])] * 2)
    terms = model.objective.loss(model, batch, negatives)
    assert float(terms.loss) == pytest.approx(density_gap(model, batch.x, negatives.x), rel=1e-4)
    assert terms.logits.shape == (60, CLASSES)


@pytest.mark.parametrize("options", [{"chain_ratio": 0.0}, {"chain_ratio": 1.5}, {"ramp": -1}])
def test_wrong_settings_of_chains_are_quoted(options):
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        Joint(**options)
