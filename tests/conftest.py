"""Two logical CPU devices, so that `MirroredStrategy` has two replicas everywhere."""

import os

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # the same numbers on every machine


def pytest_configure(config):
    """In each process that runs tests; the one that only hands them out needs no TensorFlow."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        return
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )


@pytest.fixture(autouse=True)
def fixed_seed():
    import keras

    keras.utils.set_random_seed(7)


@pytest.fixture
def blobs():
    """Three Gaussian classes in the plane, not in [-1, 1]: x `[300, 2]`, y `[300]`."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    centres = np.array([[1.0, 0.0], [3.0, 6.0], [5.0, 0.0]])
    return (centres[y] + rng.normal(size=(300, 2)) * [0.4, 1.0]).astype(np.float32), y


@pytest.fixture
def make_model():
    """A small JEM on vectors, compiled."""
    import keras

    import jem_tf

    def make(features=2, classes=3, optimizer=None, compiled=True, activation="silu", **options):
        backbone = keras.Sequential(
            [
                keras.Input((features,)),
                keras.layers.Dense(16, activation=activation),
                keras.layers.Dense(classes),
            ]
        )
        options = {"sampler": jem_tf.SGLD(steps=3), "seed": 1, **options}
        model = jem_tf.JEM(backbone, **options)
        if compiled:
            model.compile(optimizer or keras.optimizers.Adam(1e-2), metrics=["accuracy"])
        return model

    return make
