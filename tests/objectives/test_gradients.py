"""Each objective's loss and gradient against a calculation of another kind, on a toy problem.

The toy is a network of one number with classes, whose densities a grid integrates.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp, softmax

import jem_tf
from jem_tf.objectives import HDGE, IGEBM, CrossEntropy, DualAdversarial, Factored, Joint
from jem_tf.objectives.hdge import level
from jem_tf.objectives.sampled import Samples
from jem_tf.sampling.replay import Draw

GRID = np.linspace(-8, 8, 4001).astype(np.float32)[:, None]
STEP = float(GRID[1, 0] - GRID[0, 0])
CLASSES = 3


def toy(**options):
    """Log densities that fall as -x^2, so that all of them can be normalised."""
    inputs = keras.Input((1,))
    hidden = keras.layers.Dense(8, "tanh")(inputs)
    outputs = keras.layers.Dense(CLASSES)(hidden) - 0.5 * keras.ops.square(inputs)
    model = jem_tf.JEM(keras.Model(inputs, outputs), input_noise=0.0, seed=0, **options)
    model.compile(keras.optimizers.SGD(0.1))
    return model


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.arange(60) % CLASSES
    return (rng.normal(size=(60, 1)) + y[:, None] - 1).astype(np.float32), y


def batch_of(model, data):
    return model._unpack((tf.constant(data[0]), tf.constant(data[1])))


def gradient(model, loss):
    with tf.GradientTape() as tape:
        value = loss()
    slopes = tape.gradient(value, model.backbone.trainable_weights)
    return float(value), np.concatenate([np.ravel(s) for s in slopes])


def log_z(f):
    """The logarithm of the integral of exp f over the grid."""
    return tf.reduce_logsumexp(f, axis=0) + np.log(STEP)


def quantiles(log_density, n):
    """`n` points that stand for a density: its quantiles."""
    p = np.exp(log_density - logsumexp(log_density))
    below = np.cumsum(p) - p / 2
    return np.interp((np.arange(n) + 0.5) / n, below, GRID[:, 0]).astype(np.float32)[:, None]


def samples_of(model, by_class, n=3000):
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
    [Joint(lag=1e9), Factored(lag=1e9), IGEBM(lag=1e9, energy_penalty=0.0)]
    + [IGEBM(conditional=True, lag=1e9, energy_penalty=0.0)],
    ids=["joint", "factored", "igebm", "igebm by class"],
)
def test_contrast_with_exact_samples_is_the_gradient_of_the_likelihood(objective, data):
    """3 000 quantiles of the exact density as samples, against log Z integrated by the grid."""
    model = toy(objective=objective)
    x, y = data
    batch = batch_of(model, data)

    def exact():
        f, grid = model.backbone(x), model.backbone(GRID)
        rows = tf.range(len(x))
        given = tf.gather_nd(f, tf.stack([rows, tf.constant(y, tf.int32)], 1))
        if objective.by_class:
            return -tf.reduce_mean(given - tf.gather(log_z(grid), y))
        marginal = tf.reduce_logsumexp(f, axis=1)
        loss = -tf.reduce_mean(marginal) + log_z(tf.reduce_logsumexp(grid, axis=1))
        return loss + tf.reduce_mean(marginal - given) if objective.classifies else loss

    samples = samples_of(model, objective.by_class)
    _, found = gradient(model, lambda: objective.loss(model, batch, batch.x, samples).loss)
    _, expected = gradient(model, exact)
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


def test_cross_entropy_is_that_of_keras(data):
    model = toy(objective="cross_entropy")
    batch = batch_of(model, data)
    loss = lambda: model.objective.loss(model, batch, batch.x, None).loss  # noqa: E731
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    expected = gradient(model, lambda: keras_loss(data[1], model.backbone(data[0])))
    for one, other in zip(gradient(model, loss), expected):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_hdge_enumerates_the_batch_and_the_queue(data):
    """Over these points as the only ones there are, the bound is log p(x | y) itself."""
    model = toy(objective=HDGE(queue=100))
    x, y = data
    batch = batch_of(model, (x[:30], np.where(np.arange(30) % 5, y[:30], -1)))
    f, queue = model.predict(x[:30], verbose=0), model.predict(x[30:], verbose=0)
    both = np.concatenate([f, queue])
    given = -np.log(softmax(both, axis=0)[np.arange(30), y[:30]])
    marginal = -np.log(softmax(logsumexp(both, axis=1))[:30])
    expected = np.where(np.arange(30) % 5, given, marginal)
    kept = tf.constant(queue - logsumexp(f, axis=0) + np.float32(np.log(30)))
    found = model.objective.bound(tf.constant(f), kept, batch)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    loss = lambda: model.objective.loss(model, batch, batch.x, kept).loss  # noqa: E731
    value, slope = gradient(model, loss)
    plain, _ = gradient(model, lambda: CrossEntropy().loss(model, batch, batch.x, None).loss)
    assert value == pytest.approx(plain + expected.mean(), rel=1e-5)
    check_by_differences(model, loss, slope)


def test_hdge_pushes_down_as_much_as_up(data):
    """With a queue that has no gradient it would not, and logits would grow without end. Where the
    queue holds the batch itself, the gradient is that of the batch alone."""
    model = toy(objective=HDGE(queue=100))
    x, y = data
    f = tf.constant(model.predict(x[:30], verbose=0))
    batch = batch_of(model, (x[:30], y[:30]))
    slopes = []
    for kept in (f - level(f), f[:0]):
        with tf.GradientTape() as tape:
            tape.watch(f)
            bound = tf.reduce_sum(model.objective.bound(f, kept, batch))
        slopes.append(tape.gradient(bound, f))
    np.testing.assert_allclose(slopes[0], slopes[1], atol=1e-5)
    np.testing.assert_allclose(tf.reduce_sum(slopes[0], axis=0), 0.0, atol=1e-4)
    assert np.abs(slopes[0]).max() > 0.5


def check_by_differences(model, loss, slope, step=1e-2):
    """The slope along a random direction, from two values of the loss."""
    rng = np.random.default_rng(1)
    weights = model.backbone.trainable_weights
    way = [rng.normal(size=w.shape).astype(np.float32) for w in weights]
    values = []
    for sign in (1, -1):
        for weight, v in zip(weights, way):
            weight.assign_add(sign * step * v)
        values.append(float(loss()))
        for weight, v in zip(weights, way):
            weight.assign_sub(sign * step * v)
    along = slope @ np.concatenate([v.ravel() for v in way])
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(along, rel=0.02, abs=1e-3)


def test_hdge_keeps_the_newest_in_its_queue(data):
    model = toy(objective=HDGE(queue=70))
    model.fit(*data, batch_size=60, epochs=1, verbose=0)
    queue = model.objective.arrays()["queue"][0]
    assert (queue[:60] > -1e8).all() and (queue[60:] == -1e9).all()
    model.fit(*data, batch_size=60, epochs=1, verbose=0)
    assert (model.objective.arrays()["queue"][0] > -1e8).all()
    assert model.objective.arrays()["place"][0] == 120 % 70


def test_nce_is_the_logistic_loss_of_the_two_densities(data):
    model = toy(objective="nce")
    x, y = data
    model.adapt(x, y)
    model.objective.prepare(model, type("S", (), {"x": x, "y": y, "bounds": None})())
    batch = batch_of(model, data)
    noise = model.objective.contrast(model, batch, [tf.constant([1, 2])])
    loss = lambda: model.objective.loss(model, batch, batch.x, noise).loss  # noqa: E731
    value, slope = gradient(model, loss)

    def ahead(points):
        log_p = logsumexp(model.predict(points, verbose=0), axis=1) - float(model.objective.log_z)
        return log_p - model.objective.noise.log_density(points).numpy()

    inside = -np.log1p(np.exp(-ahead(x))).mean()
    outside = -np.log1p(np.exp(ahead(noise.numpy()))).mean()
    logits = model.predict(x, verbose=0)
    cross_entropy = (logsumexp(logits, axis=1) - logits[np.arange(60), y]).mean()
    assert value == pytest.approx(cross_entropy - inside - outside, rel=1e-4)
    check_by_differences(model, loss, slope)


def test_dual_adversarial_is_logistic_and_robust(data):
    objective = DualAdversarial(steps=5, step_size=0.1, radius=0.2, attack_steps=3)
    model = toy(objective=objective)
    model.adapt(data[0])
    batch = batch_of(model, data)
    start = model.start.draw(60, tf.constant([1, 2]))
    made = objective.contrast(model, batch, [tf.constant([1, 2])])
    assert (model.energy(made.numpy()) <= model.energy(start.numpy()) + 1e-5).mean() > 0.9
    moved = np.abs((made - start) / model.start.scale).max()
    assert 0 < moved <= 5 * 0.1 + 1e-5
    near = objective._worst(model, batch, batch.x)
    away = np.abs((near - batch.x) / model.start.scale)
    assert away.max() <= 0.2 + 1e-5 and away.mean() > 0.1
    f = lambda points: logsumexp(model.predict(np.asarray(points), verbose=0), axis=1)  # noqa: E731
    inside, outside = np.log1p(np.exp(-f(batch.x))).mean(), np.log1p(np.exp(f(made))).mean()
    logits = model.predict(near.numpy(), verbose=0)
    wrong = (logsumexp(logits, axis=1) - logits[np.arange(60), data[1]]).mean()
    plain = model.predict(data[0], verbose=0)
    assert wrong > (logsumexp(plain, axis=1) - plain[np.arange(60), data[1]]).mean()
    terms = objective.loss(model, batch, batch.x, made)
    assert float(terms.loss) == pytest.approx(wrong + inside + outside, rel=1e-4)
