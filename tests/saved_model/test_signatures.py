"""Exported signatures return what the model returns."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

import jem_tf
from jem_tf.energy import OOD_SCORES

ALWAYS = {"serving_default", "logits", "energy", "ood_score", "gradient"}


@pytest.mark.parametrize("n", [1, 7, 64])
def test_signatures_return_what_the_model_returns(n, served, model, images, version):
    x = images[0][:n]
    metadata = json.loads((version / "assets.extra" / "jem.json").read_text())
    logits = model.predict(x, verbose=0)
    close = {"rtol": 1e-5, "atol": 1e-5}

    answer = served["serving_default"](inputs=x)
    np.testing.assert_allclose(
        answer["probabilities"], softmax(logits / metadata["temperature"], 1), **close
    )
    np.testing.assert_array_equal(answer["class_id"], logits.argmax(1))
    assert list(answer["class_name"].numpy()) == [(b"dark", b"light")[i] for i in logits.argmax(1)]
    np.testing.assert_allclose(answer["energy"], model.energy(x), **close)
    np.testing.assert_allclose(answer["ood_score"], model.ood_score(x), **close)
    np.testing.assert_allclose(answer["percentile"], 100 * model.p_value(x), **close)
    np.testing.assert_array_equal(answer["is_ood"], model.is_ood(x))
    np.testing.assert_allclose(served["logits"](inputs=x)["logits"], logits, **close)
    energies = served["energy"](inputs=x)
    np.testing.assert_allclose(energies["joint_energy"], -logits, **close)
    np.testing.assert_allclose(energies["energy"], model.energy(x), **close)
    scores = served["ood_score"](inputs=x)
    for kind in ("fused", *OOD_SCORES, *model.detector.names):
        np.testing.assert_allclose(scores[kind], model.ood_score(x, kind), rtol=1e-4, atol=1e-5)
    for name in ("percentile", "is_ood"):
        np.testing.assert_array_equal(scores[name], answer[name])


def test_the_gradient_is_that_of_finite_differences(served, images):
    """Of the log density; inputs in [-1, 1] have units of length 1."""
    x, step = images[0][:3].astype(np.float64), 1e-2
    gradient = served["gradient"](inputs=x.astype(np.float32))["gradient"].numpy()
    for place in ((0, 2, 3, 0), (1, 0, 0, 0), (2, 5, 5, 0)):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        energies = [served["energy"](inputs=v.astype(np.float32))["energy"] for v in (up, down)]
        slope = -(energies[0] - energies[1]).numpy()[place[0]] / (2 * step)
        assert gradient[place] == pytest.approx(slope, rel=0.02, abs=2e-3)


def test_outliers_are_flagged_and_few_others(served, images):
    """67 of the 200 rows calibrate the verdict: at most 4 of 68 ranks are flagged, 5.9 %, and the
    rate on other rows has a standard deviation of 2.8 %."""
    scores = served["ood_score"](inputs=images[0])
    assert scores["is_ood"].numpy().mean() < 0.059 + 3 * 0.028
    assert 35.0 < scores["percentile"].numpy().mean() < 65.0
    checks = np.indices((6, 6)).sum(0)[None, :, :, None] % 2 * 2.0 - 1.0
    assert served["ood_score"](inputs=checks.astype(np.float32))["is_ood"].numpy().all()


def test_non_finite_inputs_are_out_of_distribution(served, images, version):
    x = images[0][:3].copy()
    x[1, 0] = np.nan
    assert served["serving_default"](inputs=x)["is_ood"].numpy()[1]
    scores = served["ood_score"](inputs=x)
    rows = json.loads((version / "assets.extra" / "jem.json").read_text())["detector"]["rows"]
    assert scores["is_ood"].numpy()[1]
    assert scores["percentile"].numpy()[1] == pytest.approx(100 / (rows + 1))


@pytest.mark.parametrize(
    "encode",
    [tf.io.encode_png, lambda x: tf.io.encode_png(tf.tile(x, (1, 1, 3)))],
    ids=["gray", "colour"],
)
def test_image_files_are_scaled_as_the_training_data(encode, served, images):
    pixels = ((images[0][:5] + 1) * 127.5).round().astype(np.uint8)
    files = tf.stack([encode(image) for image in pixels])
    by_bytes = served["serving_default_bytes"](image_bytes=files)
    by_floats = served["serving_default"](inputs=pixels.astype(np.float32) / 127.5 - 1)
    np.testing.assert_array_equal(by_bytes.pop("class_name"), by_floats["class_name"])
    for name, value in by_bytes.items():
        np.testing.assert_allclose(value, by_floats[name], rtol=1e-4, atol=1e-5)


def test_larger_images_are_resized(served):
    file = tf.io.encode_png(np.full((60, 40, 1), 255, np.uint8))
    logits = served["logits_bytes"](image_bytes=[file])["logits"]
    white = served["logits"](inputs=np.ones((1, 6, 6, 1), np.float32))["logits"]
    np.testing.assert_allclose(logits, white, rtol=1e-3, atol=1e-4)


def test_answers_do_not_depend_on_the_rest_of_the_batch(served, images):
    """Servers merge requests: a sample or a refinement must be the same alone."""
    x = images[0][:4]
    together = served["refine"](inputs=x)["refined"]
    alone = served["refine"](inputs=x[2:3])["refined"]
    np.testing.assert_allclose(together[2:3], alone, rtol=1e-4, atol=1e-5)
    again = served["refine"](inputs=together)["refined"]
    assert np.abs((again - together) - (together - x)).max() > 1e-3  # with other noise
    labels, seeds = tf.constant([0, 1, 1]), tf.constant([5, 6, 7])
    samples = served["sample"](labels=labels, seeds=seeds)["samples"]
    sample = served["sample"](labels=labels[1:2], seeds=seeds[1:2])["samples"]
    np.testing.assert_allclose(samples[1:2], sample, rtol=1e-4, atol=1e-5)
    assert np.abs(samples[1] - samples[2]).max() > 0.01


class Subclassed(keras.Model):
    """A custom model, which declares no shapes."""

    def __init__(self):
        super().__init__()
        self.hidden, self.last = keras.layers.Dense(8, "silu"), keras.layers.Dense(3)

    def call(self, x):
        return self.last(self.hidden(x))


def test_subclassed_models_on_vectors_have_no_image_signatures(blobs, tmp_path):
    model = jem_tf.JEM(Subclassed(), sampler=jem_tf.SGLD(2))
    model.adapt(blobs[0])
    path = jem_tf.export(model, tmp_path / "own", blobs, sample_steps=2, warmup_batches=(1,))
    signatures = tf.saved_model.load(str(path)).signatures
    assert set(signatures) == ALWAYS | {"refine", "sample"}
    logits = signatures["logits"](inputs=blobs[0])["logits"]
    np.testing.assert_allclose(logits, model.predict(blobs[0], verbose=0), rtol=1e-5, atol=1e-5)


def test_a_plain_classifier_gets_the_verdict_and_no_chains(images, tmp_path):
    network = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(8),
            keras.layers.Dense(2),
        ]
    )
    network.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    network.fit(*images, epochs=5, verbose=0)
    path = jem_tf.export(network, tmp_path / "plain", calibrate=images, warmup_batches=(1,))
    signatures = tf.saved_model.load(str(path)).signatures
    assert set(signatures) == ALWAYS
    logits = network.predict(images[0], verbose=0)
    answer = signatures["serving_default"](inputs=images[0])
    np.testing.assert_array_equal(answer["class_id"], logits.argmax(1))
    assert answer["is_ood"].numpy().mean() < 0.059 + 3 * 0.028
    noise = np.random.default_rng(0).normal(size=(50, 6, 6, 1)).astype(np.float32)
    assert signatures["serving_default"](inputs=5 * noise)["is_ood"].numpy().mean() > 0.9


def test_objections_explain_the_fused_score(served, images, version):
    scores = served["ood_score"](inputs=images[0][:20])
    weights = json.loads((version / "assets.extra" / "jem.json").read_text())["detector"]["weights"]
    assert scores["objections"].shape == (20, len(weights))
    np.testing.assert_allclose(-scores["objections"].numpy().sum(1), scores["fused"], rtol=1e-4)
    unused = [not any(tails.values()) for tails in weights.values()]
    assert (scores["objections"].numpy()[:, unused] < 1e-3).all()


def test_models_with_mala_have_no_signature_that_depends_on_the_batch(make_model, blobs, tmp_path):
    model = make_model(sampler=jem_tf.MALA(2))
    model.adapt(blobs[0])
    path = jem_tf.export(model, tmp_path / "mala", calibrate=blobs, warmup_batches=(1,))
    assert set(tf.saved_model.load(str(path)).signatures) == ALWAYS


def test_without_calibration_nothing_is_flagged(small_model, blobs, tmp_path):
    path = jem_tf.export(small_model, tmp_path / "plain", warmup_batches=(1,))
    served = tf.saved_model.load(str(path)).signatures
    assert set(served) == ALWAYS
    answer = served["serving_default"](inputs=blobs[0])
    assert not answer["is_ood"].numpy().any()
    assert np.isnan(answer["percentile"]).all()
    expected = softmax(small_model.predict(blobs[0], verbose=0), 1)
    np.testing.assert_allclose(answer["probabilities"], expected, rtol=1e-5, atol=1e-6)
