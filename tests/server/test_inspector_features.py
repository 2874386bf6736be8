"""The inspector and the client with models of features, whose raw inputs are texts or images."""

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf.client import JEMClient

from .inspector_page import Page, RestartableServer
from .servers import model_config

pytestmark = pytest.mark.slow


def export_encoded(directory):
    """Train and export a model of sentences and one of images, each with an encoder."""
    keras.utils.set_random_seed(7)
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    words = np.array([["sun", "sea", "sand"], ["tax", "law", "vote"]])
    texts = np.array([" ".join(rng.choice(words[label], 3)) for label in y])
    images = rng.uniform(-1, 0, (200, 8, 8, 1)) + y[:, None, None, None]
    layers = keras.layers
    vocabulary = words.ravel().tolist()
    encoders = {
        "texts": (texts, [keras.Input((), dtype="string")], "multi_hot"),
        "pictures": (images.astype(np.float32), [keras.Input((8, 8, 1))], None),
    }
    for name, (x, begin, mode) in encoders.items():
        if mode is None:
            rest = [layers.Conv2D(7, 3, activation="silu"), layers.GlobalAveragePooling2D()]
        else:
            rest = [layers.TextVectorization(output_mode=mode, vocabulary=vocabulary)]
        head = keras.Sequential([keras.Input((7,)), layers.Dense(8, "silu"), layers.Dense(2)])
        encoder = keras.Sequential(begin + rest)
        model = jem_tf.JEM(head, sampler=jem_tf.SGLD(2), encoder=encoder, input_noise=0.05, seed=0)
        model.compile(keras.optimizers.Adam(1e-2))
        model.fit(x, y, epochs=10, verbose=0)
        options = {"sample_steps": 2, "warmup_batches": (1,), "class_names": ("beach", "state")}
        jem_tf.export(model, directory / name, calibrate=(x, y), **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("encoded")
    export_encoded(directory)
    models = {name: directory / name for name in ("texts", "pictures")}
    server = RestartableServer(model_config(tmp_path_factory.mktemp("config"), **models))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def page(browser, server):
    page = Page(browser, server.url)
    page.errors()  # drops those of earlier pages
    return page


def test_text_is_typed_and_explained(page, server):
    """A served model with an encoder takes its raw inputs: here strings."""
    page.select_model("texts")
    assert page.text("numbers-label") == "Text"
    page.find("numbers").send_keys("tax vote law")
    verdict, _ = page.answer_after(lambda: page.click("send"))
    assert verdict == "state"
    page.answer_after(lambda: page.browser.find_element("css selector", "#examples button").click())
    assert page.text("verdict") == "beach"
    page.click("tab-why")
    page.wait(lambda: "Text has no gradient" in page.text("heat"))
    assert "change features" in page.text("strip-text")
    page.click("tab-dream")
    assert page.errors() == []
    with JEMClient(server.url, "texts") as client:
        answers = client.predict(["sun sea sand", "tax vote tax"])
    assert answers.class_name.tolist() == ["beach", "state"]


def test_images_of_a_model_of_features_are_drawn(page):
    page.select_model("pictures")
    page.answer_after(lambda: page.click("noise"))
    page.click("tab-why")
    page.wait(lambda: "change features" in page.text("strip-text"))
    page.wait(lambda: page.run("return document.querySelectorAll('#heat canvas').length") == 2)
    assert page.errors() == []
