"""The signature `latent` of models with a latent variable: p(z | x, y) of rows and of files."""

import json

import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf import backbones
from jem_tf.saved_model import lite
from jem_tf.saved_model.description import describe
from jem_tf.saved_model.fitted import Calibration
from jem_tf.saved_model.signatures import Signatures


@pytest.fixture(scope="module")
def latent_model(images):
    model = jem_tf.JEM(backbones.convnet((6, 6, 1), 2, width=4, latent=3), jem_tf.SGLD(2), seed=0)
    model.adapt(*images)
    return model


@pytest.fixture(scope="module")
def latent_version(latent_model, tmp_path_factory):
    directory = tmp_path_factory.mktemp("latent")
    options = {"pixel_range": (-1, 1), "sample_steps": 2, "warmup_batches": (1,)}
    return jem_tf.export(latent_model, directory, **options)


def test_the_signature_returns_what_the_model_returns(latent_model, latent_version, images):
    served = tf.saved_model.load(str(latent_version)).signatures
    pixels = ((images[0][:5] + 1) * 127.5).round().astype(np.uint8)
    x = pixels.astype(np.float32) / 127.5 - 1
    answer = served["latent"](inputs=tf.constant(x))["latent_probabilities"]
    assert answer.shape == (5, 2, 3)
    np.testing.assert_allclose(answer, latent_model.latent_probabilities(x), atol=1e-5)
    for label in range(2):
        of_label = latent_model.latent_probabilities(x, np.full(5, label))
        np.testing.assert_allclose(answer[:, label], of_label, atol=1e-5)
    files = tf.stack([tf.io.encode_png(image) for image in pixels])
    by_bytes = served["latent_bytes"](image_bytes=files)["latent_probabilities"]
    np.testing.assert_allclose(by_bytes, answer, atol=1e-5)
    logits = served["logits"](inputs=tf.constant(x))["logits"]
    np.testing.assert_allclose(logits, latent_model.predict(x, verbose=0), atol=1e-5)
    samples = served["sample"](labels=tf.constant([0, 1]), seeds=tf.constant([1, 2]))["samples"]
    assert samples.shape == (2, 6, 6, 1)


def test_an_export_says_how_many_values_z_has(latent_version, version):
    metadata = json.loads((latent_version / "assets.extra" / "jem.json").read_text())
    assert metadata["latent"] == 3 and {"latent", "latent_bytes"} <= set(metadata["signatures"])
    text = describe(latent_version)
    assert "latent: 3" in text and "latent_probabilities float32[?, 2, 3]" in text
    without = json.loads((version / "assets.extra" / "jem.json").read_text())
    assert "latent" not in without and "latent" not in without["signatures"]


def test_models_with_an_encoder_take_raw_inputs(images):
    encoder = backbones.mlp((6, 6, 1), 4, units=4, depth=1)
    model = jem_tf.JEM(backbones.mlp((4,), 2, units=4, depth=1, latent=3), encoder=encoder)
    functions = Signatures(model, Calibration(), ("a", "b"), 1, 1, None).trace(with_chains=False)
    x = images[0][:4]
    answer = functions["latent"](inputs=tf.constant(x))["latent_probabilities"]
    np.testing.assert_allclose(answer, model.latent_probabilities(x), atol=1e-5)


def test_litert_runs_a_model_with_a_latent_variable(latent_model, images):
    from ai_edge_litert.interpreter import Interpreter

    signatures = Signatures(latent_model, Calibration(), ("dark", "light"), 1, 1, None)
    interpreter = Interpreter(model_content=lite.convert(signatures))
    x = images[0][:3]
    answer = interpreter.get_signature_runner("logits")(inputs=x)["logits"]
    np.testing.assert_allclose(answer, latent_model.predict(x, verbose=0), rtol=1e-3, atol=1e-4)
