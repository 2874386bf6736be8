"""Activation normalisation: initialised once, such that the data has mean 0 and deviation 1."""

import keras
import numpy as np

from jem_tf.backbones.actnorm import ActNorm
from jem_tf.backbones.data_dependent import initialise_from_data


def test_the_first_rows_set_mean_and_deviation_of_each_channel():
    x = np.random.default_rng(0).normal(3.0, [1.0, 5.0], size=(50, 4, 2)).astype(np.float32)
    inner = keras.Sequential([ActNorm()])
    model = keras.Sequential([keras.Input((4, 2)), keras.layers.Dense(3), inner])
    initialise_from_data(model, x)
    y = model(x).numpy()
    np.testing.assert_allclose(y.mean((0, 1)), 0.0, atol=1e-5)
    np.testing.assert_allclose(y.std((0, 1)), 1.0, rtol=1e-4)
    initialise_from_data(model, 10.0 * x)  # without effect
    np.testing.assert_array_equal(model(x), y)


def test_the_layer_survives_saving(tmp_path):
    x = np.random.default_rng(0).normal(3.0, 2.0, size=(50, 3)).astype(np.float32)
    model = keras.Sequential([keras.Input((3,)), ActNorm()])
    initialise_from_data(model, x)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    initialise_from_data(copy, 10.0 * x)  # without effect
    np.testing.assert_array_equal(copy(x), model(x))
