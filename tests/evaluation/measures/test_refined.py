"""Attacks on JEM-k, with samplers whose effect on gradients is known."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf.evaluation.measures import refined

SIZES = (0.05, 0.2)  # 0.1 and 0.4 in pixels from -1 to 1


def brightness(x, training=False):
    """Logits of dark and bright: minus and plus the mean of the pixels."""
    mean = 20.0 * tf.reduce_mean(x, axis=(1, 2, 3))
    return tf.stack([-mean, mean], axis=1)


def with_sampler(move, backbone=brightness):
    """A stand-in for a JEM whose sampler applies `move` once."""
    return SimpleNamespace(run_chains=lambda x, seed, steps: (move(x), {}), backbone=backbone)


def rounded(x):
    return tf.round(x * 20) / 20


# By name: a model, and the attacks that break it. The sampler may hide the gradient, or turn it
# around, so that passing it straight through is wrong; the classifier may hide it, too.
MODELS = {
    "rounding sampler": (with_sampler(rounded), {"straight_through", "square"}),
    "mirroring sampler": (with_sampler(tf.negative), {"unrolled", "square"}),
    "rounding classifier": (
        with_sampler(tf.identity, lambda x, training=False: brightness(rounded(x))),
        {"square"},
    ),
}


@pytest.fixture
def rows():
    """16 images with a brightness of 0.2 or -0.2: a change of 0.1 cannot turn them, 0.4 can."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.1, 0.1, (16, 6, 6, 1))
    side = np.where(np.arange(16) % 2, 0.2, -0.2)
    x += (side - x.mean((1, 2, 3)))[:, None, None, None]
    return x.astype(np.float32), (side > 0).astype(np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_rows_must_withstand_all_three_attacks(name, norm, rows):
    model, breaking = MODELS[name]
    x, y = rows
    if name == "mirroring sampler":
        y = 1 - y
    sizes = SIZES if norm == "linf" else [6 * size for size in SIZES]  # sqrt(36 pixels)

    def accuracy(*kinds):
        return refined.attack(
            norm, model, 1, x, y, (-1.0, 1.0), sizes, steps=20, square_steps=150, kinds=kinds
        ).accuracy

    worst = accuracy(*refined.ATTACKS)
    assert worst[:2] == [1.0, 1.0] and worst[2] == 0.0
    for kind in refined.ATTACKS:
        single = accuracy(kind)
        assert np.less_equal(worst, single).all()
        assert (single[2] < 0.5) == (kind in breaking), kind


def test_the_straight_through_gradient_is_that_of_the_classifier_at_the_refined_input(rows):
    x = tf.constant(rows[0][:2])
    refine = lambda x: tf.tanh(3.0 * x)  # noqa: E731
    model = with_sampler(refine, lambda x, training=False: brightness(x**3))

    def gradient(network, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = network(x)[:, 0]
        return tape.gradient(value, x)

    network = refined.network(model, 1, draws=2, straight_through=True)
    classifier = lambda x: tf.nn.log_softmax(model.backbone(x))  # noqa: E731
    np.testing.assert_allclose(gradient(network, x), gradient(classifier, refine(x)), rtol=1e-4)
    np.testing.assert_allclose(network(x), classifier(refine(x)), rtol=1e-4)
    assert not np.allclose(gradient(network, x), gradient(refined.network(model, 1), x), rtol=0.1)


def test_the_gradient_of_jem_k_includes_its_sampler_steps():
    """Against a finite difference of the whole computation with the same noise."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.9, 0.9, (200, 4, 4, 1)).astype(np.float32)
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Flatten(), keras.layers.Dense(32, "silu"), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((4, 4, 1)), *layers])
    jem = jem_tf.JEM(model, sampler=jem_tf.SGLD(5, step_size=0.3, noise=0.05), seed=0)
    jem.adapt(x)
    logits = refined.network(jem, 3)
    point, direction = tf.constant(x[:1]), np.zeros((1, 4, 4, 1), np.float32)
    direction[0, 1, 2, 0] = 1e-2

    def first_call(value):  # of a new network each time: the first call has the same noise
        return refined.network(jem, 3, draws=2)(value)[0, 0]

    with tf.GradientTape() as tape:
        tape.watch(point)
        value = first_call(point)
    derivative = tape.gradient(value, point)[0, 1, 2, 0]
    difference = (first_call(point + direction) - first_call(point - direction)) / 2e-2
    assert float(derivative) == pytest.approx(float(difference), rel=0.05, abs=1e-3)
    assert abs(float(difference)) > 1e-3
    first, second = logits(point), logits(point)
    assert not np.allclose(first, second)  # new noise at every call
    np.testing.assert_allclose(tf.reduce_sum(tf.exp(first), 1), 1.0, rtol=1e-5)
    averaged = refined.network(jem, 3, draws=64)
    assert np.std([averaged(point)[0, 0] for _ in range(8)]) < np.std(
        [logits(point)[0, 0] for _ in range(8)]
    )
