"""A small image model and its export, which tests of this package read."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import compile_for_tests

import jem_tf
from jem_tf import backbones


@pytest.fixture(scope="session")
def images():
    """200 images of 6 x 6 pixels in two classes, dark and light, in [-1, 1]."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.uniform(-1, 0, (200, 6, 6, 1)) + y[:, None, None, None]
    return np.clip(x, -1, 1).astype(np.float32), y


@pytest.fixture(scope="session")
def exported(images, shared_directory):
    """A directory with `model.keras` and `images/1`, its calibrated export."""

    def write(directory):
        keras.utils.set_random_seed(0)
        backbone = backbones.convnet((6, 6, 1), 2, width=8)
        model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(3), seed=0)
        compile_for_tests(model)
        model.fit(*images, batch_size=50, epochs=4, verbose=0)
        model.fit_detector(*images)
        model.save(directory / "model.keras")
        jem_tf.export(
            model,
            directory / "images",
            calibrate=images,
            class_names=("dark", "light"),
            sample_steps=20,
            pixel_range=(-1, 1),
        )

    return shared_directory("exported", write)


@pytest.fixture(scope="session")
def model(exported):
    """The trained model; tests must not change it."""
    return jem_tf.load(exported / "model.keras")


@pytest.fixture(scope="session")
def version(exported):
    """The directory of the exported version."""
    return exported / "images" / "1"


@pytest.fixture(scope="session")
def served(version):
    """The signatures of the exported version."""
    return tf.saved_model.load(str(version)).signatures


@pytest.fixture
def small_model():
    """A model on vectors that has seen no data, with few signatures to trace."""
    backbone = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    return jem_tf.JEM(backbone, sampler=jem_tf.SGLD(2), seed=0)
