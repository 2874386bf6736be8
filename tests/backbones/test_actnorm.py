"""Activation normalisation: initialised once, such that the data has mean 0 and deviation 1."""

import keras
import numpy as np

import jem_tf
from jem_tf.backbones.actnorm import ActNorm, initialise_actnorm


def test_the_first_rows_set_mean_and_deviation_of_each_channel():
    x = np.random.default_rng(0).normal(3.0, [1.0, 5.0], size=(50, 4, 2)).astype(np.float32)
    inner = keras.Sequential([ActNorm()])
    model = keras.Sequential([keras.Input((4, 2)), keras.layers.Dense(3), inner])
    initialise_actnorm(model, x)
    y = model(x).numpy()
    np.testing.assert_allclose(y.mean((0, 1)), 0.0, atol=1e-5)
    np.testing.assert_allclose(y.std((0, 1)), 1.0, rtol=1e-4)
    initialise_actnorm(model, 10.0 * x)  # without effect
    np.testing.assert_array_equal(model(x), y)


def test_the_layer_survives_saving(tmp_path):
    x = np.random.default_rng(0).normal(3.0, 2.0, size=(50, 3)).astype(np.float32)
    model = keras.Sequential([keras.Input((3,)), ActNorm()])
    initialise_actnorm(model, x)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    initialise_actnorm(copy, 10.0 * x)  # without effect
    np.testing.assert_array_equal(copy(x), model(x))


def test_a_network_that_was_trained_keeps_its_values():
    x = np.random.default_rng(0).normal(3.0, 2.0, size=(60, 3)).astype(np.float32)
    network = keras.Sequential([keras.Input((3,)), ActNorm(), keras.layers.Dense(2)])
    network.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    network.fit(x, np.arange(60) % 2, verbose=0)
    before = network(x).numpy()
    jem_tf.JEM.from_classifier(network).adapt(x)
    np.testing.assert_array_equal(network(x), before)
