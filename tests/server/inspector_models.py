"""Models and the server for the tests of the inspector."""

import shutil

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf import data

from .inspector_page import Page, RestartableServer
from .servers import model_config

HOSTILE = "<img src=x onerror=alert(1)>"
AUROC = {"interpolations": {"gradient_norm": 0.75, "log_density": 0.5}}


@pytest.fixture(scope="session")
def digits(shared_directory):
    """The directory of a model of digits."""
    return shared_directory("digits", export_digits) / "digits"


def export_digits(directory):
    """Train and export a model; a short training is enough to recognise clear drawings."""
    keras.utils.set_random_seed(7)
    dataset, layers = data.load("digits"), keras.layers
    backbone = keras.Sequential(
        [
            keras.Input(dataset.shape),
            layers.Flatten(),
            layers.Dense(256, "silu"),
            layers.Dense(256, "silu"),
            layers.Dense(10),
        ]
    )
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(4), input_noise=0.05, seed=0)
    model.compile(keras.optimizers.Adam(2e-3, clipnorm=1.0, use_ema=True, ema_momentum=0.97))
    x, y = dataset.arrays("train")
    swap = keras.callbacks.SwapEMAWeights()
    model.fit(x, y, batch_size=64, epochs=10, callbacks=[swap], verbose=0)
    jem_tf.export(
        model,
        directory / "digits",
        calibrate=dataset.arrays("validation"),
        test=dataset.arrays("test"),
        class_names=dataset.class_names,
        pixel_range=dataset.pixel_range,
        sample_steps=20,
        warmup_batches=(1,),
        extra={"auroc": AUROC},
    )


@pytest.fixture(scope="session")
def tables(shared_directory):
    """A directory with the models `table` and `uncalibrated`, whose inputs are two numbers."""
    return shared_directory("tables", export_tables)


def export_tables(directory):
    """Train a model of two classes, one of which has HTML as its name, and export it twice."""
    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = (rng.normal(size=(200, 2)) * 0.3 + 2.0 * y[:, None]).astype(np.float32)
    backbone = keras.Sequential([keras.Input((2,)), keras.layers.Dense(8, "silu")])
    backbone.add(keras.layers.Dense(2))
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(2), seed=0)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(x, y, epochs=5, verbose=0)
    options = {"class_names": ("low", HOSTILE), "sample_steps": 2, "warmup_batches": (1,)}
    jem_tf.export(model, directory / "table", calibrate=(x, y), **options)
    jem_tf.export(model, directory / "uncalibrated", **options)


@pytest.fixture(scope="session")
def renamed(tables, tmp_path_factory):
    """A copy of `table`, to which a test adds a version with another class name."""
    return shutil.copytree(tables / "table", tmp_path_factory.mktemp("models") / "renamed")


@pytest.fixture(scope="session")
def inspector_server(digits, tables, renamed, judge, tmp_path_factory):
    """A server of all these models and `judge`, which was not exported by jem_tf."""
    config = model_config(
        tmp_path_factory.mktemp("config"),
        digits=digits,
        table=tables / "table",
        uncalibrated=tables / "uncalibrated",
        renamed=renamed,
        judge=judge,
    )
    server = RestartableServer(config)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def page(browser, inspector_server):
    page = Page(browser, inspector_server.url)
    page.errors()  # drops those of earlier pages
    yield page
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
