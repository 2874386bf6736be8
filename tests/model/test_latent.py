"""What a model with a latent variable answers: E(x, y, z), p(z | x, y), samples and modes of pairs.

The exact model has Gaussians p(x | y, z) of known means and variance: f is quadratic.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import compile_for_tests
from scipy.special import logsumexp, softmax
from scipy.stats import kstest
from sklearn.datasets import make_moons

import jem_tf
from jem_tf.backbones import LatentDense, mlp

MEANS = np.array([[[-2.0, 0.0], [2.0, 1.0]], [[0.0, 3.0], [0.0, -3.0]]])  # [y, z, features]
DEVIATION = 0.4


@keras.saving.register_keras_serializable("tests")
class WithSquare(keras.layers.Layer):
    """x and |x|², of which a quadratic function is a linear one."""

    def call(self, x):
        return keras.ops.concatenate([x, keras.ops.sum(x**2, -1, keepdims=True)], -1)


def log_gaussians(x):
    """log p(x | y, z) without its constant; `[n, classes, latent]`."""
    return -((x[:, None, None] - MEANS) ** 2).sum(-1) / (2 * DEVIATION**2)


@pytest.fixture(scope="module")
def model():
    """-|x - m|² / 2 s² = x m / s² - |x|² / 2 s² - |m|² / 2 s² for each pair (y, z)."""
    backbone = keras.Sequential([keras.Input((2,)), WithSquare(), LatentDense(2, latent=2)])
    means, precision = MEANS.reshape(4, 2), 1 / DEVIATION**2
    kernel = np.vstack([means.T * precision, np.full((1, 4), -precision / 2)])
    backbone.layers[-1].set_weights([kernel, -(means**2).sum(1) * precision / 2])
    # The unit of chains is half the range, about 3: a step of 0.003 in it is 0.03 in x², a sixth
    # of the variance.
    model = jem_tf.JEM(backbone, sampler=jem_tf.MALA(20, 3e-3), seed=0)
    rng = np.random.default_rng(0)
    y, z = np.arange(400) % 2, np.arange(400) // 2 % 2
    model.adapt((MEANS[y, z] + DEVIATION * rng.normal(size=(400, 2))).astype(np.float32), y)
    return model


@pytest.fixture
def x():
    return np.random.default_rng(2).uniform(-3, 3, (9, 2)).astype(np.float32)


def test_energies_are_those_of_the_gaussians(model, x):
    """float32 has an error of 1e-4 relative to terms of up to 100 nats."""
    expected = -log_gaussians(x)
    y, z = np.arange(9) % 2, np.arange(9) // 2 % 2
    close = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose(model.energy(x, y, latent=z), expected[range(9), y, z], **close)
    np.testing.assert_allclose(model.energy(x, y, latent=1), expected[range(9), y, 1], **close)
    marginal = -logsumexp(-expected, axis=2)
    np.testing.assert_allclose(model.energy(x, y), marginal[range(9), y], **close)
    np.testing.assert_allclose(model.energy(x), -logsumexp(-expected, axis=(1, 2)), **close)


def test_probabilities_of_z_are_a_softmax(model, x):
    expected = softmax(log_gaussians(x), axis=2)
    np.testing.assert_allclose(model.latent_probabilities(x), expected, atol=1e-4)
    y = np.arange(9) % 2
    of_labels = model.latent_probabilities(x, y, batch_size=4)
    np.testing.assert_allclose(of_labels, expected[range(9), y], atol=1e-4)
    assert model.latent_probabilities(x[:0]).shape == (0, 2, 2)


def test_in_a_graph_answers_are_tensors(model, x):
    y, z = np.arange(9) % 2, np.arange(9) // 2 % 2
    answers = tf.function(
        lambda x, y, z: (model.energy(x, y, latent=z), model.latent_probabilities(x, y)),
        autograph=False,
    )(x, y, z)
    np.testing.assert_allclose(answers[0], model.energy(x, y, latent=z), rtol=1e-5)
    np.testing.assert_allclose(answers[1], model.latent_probabilities(x, y), atol=1e-6)


@pytest.mark.parametrize(("label", "latent"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_samples_of_a_pair_follow_its_gaussian(model, label, latent):
    """Each feature is normal, by a Kolmogorov-Smirnov test: 1 of 1000 seeds would fail."""
    samples = model.sample(300, label, seed=1, latent=latent)
    for feature in range(2):
        normal = ("norm", (MEANS[label, latent, feature], DEVIATION))
        assert kstest(samples[:, feature], *normal).pvalue > 1e-3


def test_samples_of_a_class_have_all_values_of_z(model):
    z = model.latent_probabilities(model.sample(200, 0, seed=1), np.zeros(200, int)).argmax(1)
    assert 0.2 < z.mean() < 0.8  # chains start in both


def test_modes_of_pairs_are_the_means_of_their_gaussians(model):
    y, z = np.array([0, 0, 1, 1, 0]), np.array([0, 1, 0, 1, 0])
    modes = model.modes(5, y, seed=3, latent=z)
    np.testing.assert_allclose(modes, MEANS[y, z], atol=1e-3)
    assert (model.energy(modes, y, latent=z) < 1e-3).all()


def test_modes_of_a_class_are_different_answers(model):
    """The Gaussians are ten deviations apart: each end is one of the two means."""
    modes = model.modes(20, 1, seed=0)
    distances = np.linalg.norm(modes[:, None] - MEANS[1], axis=2)
    assert distances.min(1).max() < 1e-3
    assert set(distances.argmin(1)) == {0, 1}


def test_modes_repeat_with_their_seed_and_need_no_latent_variable(make_model, blobs):
    model = make_model()
    model.adapt(*blobs)
    first, again = (model.modes(4, 1, steps=5, seed=1) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    start = model.modes(4, 1, steps=1, seed=1)
    assert (model.energy(first, np.ones(4, int)) < model.energy(start, np.ones(4, int))).all()


@pytest.mark.parametrize("method", ["sample", "modes"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latent": 0}, "latent=0 without a class"),
        ({"label": 0, "latent": 2}, "`latent` must be between 0 and 1. Received: latent=2"),
        ({"label": 0, "latent": -1}, "latent=-1"),
        ({"label": 0, "latent": [0, 1]}, "latent=\\[0, 1\\]"),
        ({"label": 2, "latent": 0}, "label=2"),
    ],
)
def test_errors_quote_wrong_pairs(model, method, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(model, method)(3, **options)


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m.sample(2, 0, latent=0),
        lambda m, x: m.modes(2, 0, latent=0),
        lambda m, x: m.energy(x, np.zeros(len(x), int), latent=0),
        lambda m, x: m.latent_probabilities(x),
    ],
)
def test_models_without_a_latent_variable_say_what_they_need(make_model, blobs, call):
    model = make_model()
    model.adapt(*blobs)
    with pytest.raises(ValueError, match=r"ends in `jem_tf\.backbones\.LatentDense`"):
        call(model, blobs[0])


def test_a_model_in_a_model_has_its_latent_variable(x):
    inner = mlp((2,), 3, units=4, depth=1, latent=2)
    outer = keras.Sequential([keras.Input((2,)), keras.layers.Rescaling(0.5), inner])
    expected = jem_tf.JEM(inner).latent_probabilities(0.5 * x)
    np.testing.assert_allclose(jem_tf.JEM(outer).latent_probabilities(x), expected, rtol=1e-5)


def test_a_trained_model_is_saved_and_loaded(blobs, tmp_path):
    model = jem_tf.JEM(mlp((2,), 3, units=8, depth=1, latent=2), jem_tf.SGLD(2), seed=0)
    assert model.one_pass  # one forward pass for both terms of the loss, as without z
    compile_for_tests(model)
    model.fit(*blobs, batch_size=100, epochs=5, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = jem_tf.load(tmp_path / "model.keras")
    x, y = blobs
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), model.predict(x, verbose=0))
    np.testing.assert_allclose(
        loaded.latent_probabilities(x, y), model.latent_probabilities(x, y), rtol=1e-6
    )
    samples = [m.sample(3, 1, steps=3, seed=1, latent=1) for m in (model, loaded)]
    np.testing.assert_allclose(*samples, rtol=1e-6)


def test_two_moons_are_learned_by_joint_with_four_values_of_z():
    """The classes are learned, and z divides each moon into parts that lie together."""
    x, y = make_moons(1000, noise=0.08, random_state=0)
    x = x.astype(np.float32)
    backbone = mlp((2,), 2, units=32, depth=2, latent=4)
    model = jem_tf.JEM(backbone, jem_tf.MALA(5, 3e-3), input_noise=0.0, seed=0)
    compile_for_tests(model)
    model.fit(x, y, batch_size=200, epochs=40, verbose=0)
    assert (model.predict(x, verbose=0).argmax(1) == y).mean() > 0.97
    noise = np.random.default_rng(0).uniform(-2, 3, (500, 2)).astype(np.float32)
    assert model.energy(x).mean() < model.energy(noise).mean()
    z = model.latent_probabilities(x, y).argmax(1)
    for label in range(2):
        moon, part = x[y == label], z[y == label]
        assert len(set(part)) > 1
        within = sum(moon[part == k].var(0).sum() * (part == k).mean() for k in set(part))
        assert within < 0.7 * moon.var(0).sum()
