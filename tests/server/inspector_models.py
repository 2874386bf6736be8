"""Models and the server for the tests of the inspector."""

import shutil

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf import backbones, data

from .inspector_page import Page, RestartableServer
from .servers import model_config

HOSTILE = "<img src=x onerror=alert(1)>"
AUROC = {"interpolations": {"gradient_norm": 0.75, "log_density": 0.5}}


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A model of digits, exported; short training is enough to recognise clear drawings."""
    dataset = data.load("digits")
    model = jem_tf.JEM(
        backbones.convnet(dataset.shape, 10), sampler=jem_tf.SGLD(4), input_noise=0.05, seed=0
    )
    model.compile(keras.optimizers.Adam(1e-3, clipnorm=1.0, use_ema=True, ema_momentum=0.99))
    x, y = dataset.arrays("train")
    swap = keras.callbacks.SwapEMAWeights()
    model.fit(x, y, batch_size=64, epochs=5, callbacks=[swap], verbose=0)
    base = tmp_path_factory.mktemp("digits") / "digits"
    jem_tf.export(
        model,
        base,
        calibrate=dataset.arrays("validation"),
        test=dataset.arrays("test"),
        class_names=dataset.class_names,
        pixel_range=dataset.pixel_range,
        sample_steps=20,
        warmup_batches=(1,),
        extra={"auroc": AUROC},
    )
    return base


@pytest.fixture(scope="session")
def tables(tmp_path_factory):
    """A directory with models of two numbers: `table`, `renamed` (a copy) and `uncalibrated`.

    The name of one class is HTML.
    """
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = (rng.normal(size=(200, 2)) * 0.3 + 2.0 * y[:, None]).astype(np.float32)
    backbone = keras.Sequential([keras.Input((2,)), keras.layers.Dense(8, "silu")])
    backbone.add(keras.layers.Dense(2))
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(2), seed=0)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(x, y, epochs=5, verbose=0)
    directory = tmp_path_factory.mktemp("tables")
    options = {"class_names": ("low", HOSTILE), "sample_steps": 2, "warmup_batches": (1,)}
    jem_tf.export(model, directory / "table", calibrate=(x, y), **options)
    jem_tf.export(model, directory / "uncalibrated", **options)
    shutil.copytree(directory / "table", directory / "renamed")
    return directory


@pytest.fixture(scope="session")
def inspector(digits, tables, rules, tmp_path_factory):
    """A server of all these models and `rules`, which was not exported by jem_tf."""
    names = ("table", "renamed", "uncalibrated")
    paths = {"digits": digits, **{name: tables / name for name in names}, "rules": rules}
    server = RestartableServer(model_config(tmp_path_factory.mktemp("config"), **paths))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def page(browser, inspector):
    page = Page(browser, inspector.url)
    page.errors()  # drops those of earlier pages
    yield page
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
