"""`LatentDense`: logits are sums over z by enumeration, with exact gradients, saved and loaded."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from jem_tf import backbones
from jem_tf.backbones import LatentDense

CLASSES, LATENT = 3, 4


@pytest.fixture
def layer():
    layer = LatentDense(CLASSES, LATENT)
    layer.build((None, 5))
    rng = np.random.default_rng(0)
    layer.set_weights([rng.normal(size=(5, 12)), rng.normal(size=12)])
    return layer


@pytest.fixture
def inputs():
    return np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)


def test_a_logit_is_the_sum_over_z_by_enumeration(layer, inputs):
    kernel, bias = layer.get_weights()
    logits = layer(inputs).numpy()
    assert logits.shape == (7, CLASSES)
    for row, x in enumerate(inputs):
        for y in range(CLASSES):
            columns = [y * LATENT + z for z in range(LATENT)]
            terms = [np.exp(x @ kernel[:, c] + bias[c]) for c in columns]
            assert logits[row, y] == pytest.approx(np.log(sum(terms)), abs=1e-5)
    np.testing.assert_allclose(logits, logsumexp(layer.pairs(inputs), axis=2), atol=1e-5)


def test_large_values_do_not_overflow(layer, inputs):
    far = 1e4 * inputs
    np.testing.assert_allclose(layer(far), layer.pairs(far).numpy().max(2), rtol=1e-5)
    assert np.isfinite(layer(far)).all()


def test_the_gradient_is_that_of_finite_differences(layer, inputs):
    """In float32 a step of 1e-2 has errors of rounding and curvature of about 1e-3."""
    x = tf.constant(inputs)
    with tf.GradientTape() as tape:
        tape.watch(x)
        logits = layer(x)[:, 1]
    gradient = tape.gradient(logits, x).numpy()
    for feature, unit in enumerate(1e-2 * np.eye(5, dtype=np.float32)):
        slope = (layer(inputs + unit) - layer(inputs - unit)).numpy()[:, 1] / 2e-2
        np.testing.assert_allclose(gradient[:, feature], slope, atol=3e-3)


def test_one_value_of_z_is_a_dense_layer(inputs):
    layer, dense = LatentDense(CLASSES, 1), keras.layers.Dense(CLASSES)
    expected = dense(inputs)
    layer.build((None, 5))
    layer.set_weights(dense.get_weights())
    np.testing.assert_allclose(layer(inputs), expected, atol=1e-6)


def test_values_of_z_begin_nearly_alike():
    """The kernels of a class differ by noise of 0.3 of their size. The standard deviation of a
    value of z around its class is then 0.3 / sqrt(1 + 0.3²) of all, in the limit of many z."""
    layer = LatentDense(10, 8)
    layer.build((None, 500))
    kernel = layer.get_weights()[0].reshape(500, 10, 8)
    assert kernel.std(axis=2, ddof=1).mean() / kernel.std() == pytest.approx(0.29, abs=0.03)


def test_a_network_is_saved_and_loaded(tmp_path, inputs):
    network = backbones.mlp((5,), CLASSES, units=8, depth=1, latent=LATENT)
    network.save(tmp_path / "network.keras")
    loaded = keras.saving.load_model(tmp_path / "network.keras")
    assert loaded.layers[-1].get_config() == network.layers[-1].get_config()
    np.testing.assert_array_equal(loaded(inputs), network(inputs))


@pytest.mark.parametrize("name", ["convnet", "mlp", "resnet"])
def test_backbones_have_the_option_latent(name):
    make = getattr(backbones, name)
    network = make((8, 8, 1), 5, latent=3)
    last = network.layers[-1]
    assert (type(last), last.units, last.latent) == (LatentDense, 5, 3)
    assert network(np.zeros((2, 8, 8, 1), np.float32)).shape == (2, 5)
    assert type(make((8, 8, 1), 5).layers[-1]) is keras.layers.Dense


def test_logits_of_mixed_precision_networks_are_float32():
    network = backbones.resnet((8, 8, 1), 5, width=4, dtype="mixed_bfloat16", latent=3)
    assert network(np.zeros((2, 8, 8, 1), np.float32)).dtype == tf.float32


@pytest.mark.parametrize("latent", [0, -1, 2.5, True])
def test_errors_quote_the_number_of_values(latent):
    for make in (lambda: LatentDense(2, latent), lambda: backbones.mlp((2,), 2, latent=latent)):
        with pytest.raises(ValueError, match=f"`latent` .* latent={latent}"):
            make()
