"""Fixtures for all tests. Two logical CPU devices let `MirroredStrategy` have two replicas."""

import fcntl
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # the same numbers on every machine


def pytest_configure(config):
    """Configure TensorFlow in each process that runs tests; the controller of xdist runs none."""
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
    """One strategy for all tests: TensorFlow numbers the collectives of each strategy from 0."""
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory):
    """A function that fills a directory once for all workers of xdist, and returns its path."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # the directories of all workers are here

    def shared(name, write):
        path = base / "shared" / name
        path.parent.mkdir(exist_ok=True)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                temporary = path.with_name(f".{name}")
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir()
                write(temporary)
                temporary.rename(path)
        return path

    return shared


@pytest.fixture(scope="session")
def blobs():
    """Three Gaussian classes in the plane, not in [-1, 1]: x `[300, 2]`, y `[300]`."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    centres = np.array([[1.0, 0.0], [3.0, 6.0], [5.0, 0.0]])
    x = (centres[y] + rng.normal(size=(300, 2)) * [0.4, 1.0]).astype(np.float32)
    x.flags.writeable = y.flags.writeable = False
    return x, y


@pytest.fixture(scope="session")
def make_model():
    """A function that makes a small `JEM` on vectors, compiled with accuracy of integer labels."""
    import keras
    from helpers import compile_for_tests

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
            compile_for_tests(model, optimizer)
        return model

    return make


@pytest.fixture(scope="session")
def small(shared_directory):
    """An .npz file with 480 images of 4 x 4 pixels in two classes, dark and bright."""

    def write(directory):
        rng = np.random.default_rng(0)
        y = np.arange(480) % 2
        x = (rng.uniform(0, 127, (480, 4, 4, 1)) + 127 * y[:, None, None, None]).astype(np.uint8)
        np.savez(directory / "small.npz", x=x, y=y)

    return str(shared_directory("data", write) / "small.npz")


@pytest.fixture(scope="session")
def trained(small, shared_directory):
    """The directory of a finished run on the images of `small`; tests must not change it."""
    from jem_tf_cli import main

    def write(directory):
        out = str(directory / "run")
        flags = ["--epochs", "2", "--batch-size", "16", "--steps", "2", "--out", out]
        assert main(["train", small, *flags]) == 0

    return shared_directory("trained", write) / "run"


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the finished run, which a test may change."""
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
