"""Two logical CPU devices, so that `MirroredStrategy` has two replicas everywhere."""

import os
import shutil
from pathlib import Path

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


@pytest.fixture(scope="session")
def mirrored():
    """One for all tests: TensorFlow numbers collectives anew in each strategy of a process."""
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


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


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A tiny image set, dark and bright, as .npz."""
    place = tmp_path_factory.mktemp("data") / "small.npz"
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    x = (rng.uniform(0, 127, (80, 4, 4, 1)) + 127 * y[:, None, None, None]).astype(np.uint8)
    np.savez(place, x=x, y=y)
    return str(place)


@pytest.fixture(scope="session")
def trained(small, tmp_path_factory):
    """A finished run on it."""
    from jem_tf import cli

    out = tmp_path_factory.mktemp("runs") / "run"
    flags = ["--epochs", "2", "--batch-size", "16", "--steps", "2", "--out", str(out)]
    assert cli.main(["train", small, *flags]) == 0
    return out


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it, to do with as a test likes."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window, whose console is kept."""
    from selenium import webdriver

    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("needs Chromium and ChromeDriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-background-networking"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()
