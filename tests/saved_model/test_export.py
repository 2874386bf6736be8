"""Exported signatures return what the model returns, and need TensorFlow alone."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.optimize import brute
from scipy.special import log_softmax, softmax

import jem_tf
from jem_tf import backbones, cli
from jem_tf.detection.calibration import fit_temperature
from jem_tf.energy import OOD_SCORES
from jem_tf.saved_model import description as inspection

ALWAYS = {"serving_default", "logits", "energy", "ood_score", "gradient"}


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = rng.uniform(-1, 0, (200, 6, 6, 1)) + y[:, None, None, None]
    return np.clip(x, -1, 1).astype(np.float32), y


@pytest.fixture(scope="module")
def model(images):
    keras.utils.set_random_seed(0)
    backbone = backbones.convnet((6, 6, 1), 2, width=8)
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(3), seed=0)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(*images, epochs=3, verbose=0)
    return model


@pytest.fixture(scope="module")
def version(model, images, tmp_path_factory):
    place = tmp_path_factory.mktemp("models") / "images"
    return jem_tf.export(
        model,
        place,
        calibrate=images,
        class_names=("dark", "light"),
        sample_steps=20,
        pixel_range=(-1, 1),
    )


@pytest.fixture(scope="module")
def served(version):
    return tf.saved_model.load(str(version)).signatures


@pytest.mark.parametrize("n", [1, 7, 64])
def test_signatures_return_what_the_model_returns(n, served, model, images, version):
    x = images[0][:n]
    facts = json.loads((version / "assets.extra" / "jem.json").read_text())
    logits = model.predict(x, verbose=0)
    score = model.ood_score(x)
    close = {"rtol": 1e-5, "atol": 1e-5}

    answer = served["serving_default"](inputs=x)
    np.testing.assert_allclose(
        answer["probabilities"], softmax(logits / facts["temperature"], 1), **close
    )
    np.testing.assert_array_equal(answer["class_id"], logits.argmax(1))
    assert list(answer["class_name"].numpy()) == [(b"dark", b"light")[i] for i in logits.argmax(1)]
    np.testing.assert_allclose(answer["energy"], model.energy(x), **close)
    np.testing.assert_allclose(answer["ood_score"], score, **close)
    np.testing.assert_array_equal(answer["is_ood"], score < facts["ood_threshold"])
    np.testing.assert_allclose(served["logits"](inputs=x)["logits"], logits, **close)
    energies = served["energy"](inputs=x)
    np.testing.assert_allclose(energies["joint_energy"], -logits, **close)
    np.testing.assert_allclose(energies["energy"], model.energy(x), **close)
    scores = served["ood_score"](inputs=x)
    for kind in OOD_SCORES:
        np.testing.assert_allclose(scores[kind], model.ood_score(x, kind), **close)


def test_gradient_is_the_slope_of_the_log_density(served, images):
    """By finite differences; inputs of [-1, 1] have units of length 1."""
    x, step = images[0][:3].astype(np.float64), 1e-2
    slope = served["gradient"](inputs=x.astype(np.float32))["gradient"].numpy()
    for place in ((0, 2, 3, 0), (1, 0, 0, 0), (2, 5, 5, 0)):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        energies = [served["energy"](inputs=v.astype(np.float32))["energy"] for v in (up, down)]
        found = -(energies[0] - energies[1]).numpy()[place[0]] / (2 * step)
        assert slope[place] == pytest.approx(found, rel=0.02, abs=2e-3)


def test_examples_are_a_request_with_a_row_of_each_class(version, served, images):
    file = version / "assets.extra" / "examples.json"
    request = json.loads(file.read_text())
    x = np.array(request["instances"], np.float32)
    np.testing.assert_allclose(x, images[0][:2], atol=1e-4)  # labels 0, 1
    assert request["signature_name"] in served


def test_threshold_and_percentile_are_those_of_the_calibration_data(served, images):
    scores = served["ood_score"](inputs=images[0])
    assert scores["is_ood"].numpy().mean() == pytest.approx(0.05, abs=0.006)
    assert scores["percentile"].numpy().mean() == pytest.approx(50.0, abs=1.0)


def test_temperature_has_the_best_likelihood():
    """Against a brute search; and a model that doubles its logits wants twice the temperature."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(400, 5)) * 3, rng.integers(5, size=400)
    labels = np.where(rng.uniform(size=400) < 0.6, logits.argmax(1), labels)
    nll = lambda t: -log_softmax(logits / t, 1)[np.arange(400), labels].mean()  # noqa: E731
    best = brute(lambda t: nll(t[0]), [(0.2, 10)], Ns=500)[0]
    assert fit_temperature(logits, labels) == pytest.approx(best, rel=1e-3)
    assert fit_temperature(2 * logits, labels) == pytest.approx(2 * best, rel=1e-3)


@pytest.mark.parametrize(
    "encode", [tf.io.encode_png, lambda x: tf.io.encode_png(tf.tile(x, (1, 1, 3)))]
)
def test_image_bytes_get_the_training_preprocessing(encode, served, images):
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
    """Servers merge requests: a sample and a refinement must be the same alone."""
    x = images[0][:4]
    together = served["refine"](inputs=x)["refined"]
    alone = served["refine"](inputs=x[2:3])["refined"]
    np.testing.assert_allclose(together[2:3], alone, rtol=1e-4, atol=1e-5)
    again = served["refine"](inputs=together)["refined"]
    assert np.abs((again - together) - (together - x)).max() > 1e-3  # other noise, not the same
    labels, seeds = tf.constant([0, 1, 1]), tf.constant([5, 6, 7])
    several = served["sample"](labels=labels, seeds=seeds)["samples"]
    one = served["sample"](labels=labels[1:2], seeds=seeds[1:2])["samples"]
    np.testing.assert_allclose(several[1:2], one, rtol=1e-4, atol=1e-5)
    assert np.abs(several[1] - several[2]).max() > 0.01


def test_versions_count_up_and_are_never_overwritten(model, tmp_path):
    (tmp_path / "m" / "7").mkdir(parents=True)
    (tmp_path / "m" / "notes").mkdir()
    first = jem_tf.export(model, tmp_path / "m", sample_steps=1)
    second = jem_tf.export(model, tmp_path / "m", sample_steps=1)
    assert (first.name, second.name) == ("8", "9")
    assert not [p for p in (tmp_path / "m").iterdir() if p.name.startswith(".")]


def test_a_failed_export_leaves_nothing_behind(model, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(tf.io, "TFRecordWriter", fail)
    with pytest.raises(OSError, match="disk full"):
        jem_tf.export(model, tmp_path / "m", sample_steps=1)
    assert list((tmp_path / "m").iterdir()) == []


def test_the_export_runs_where_neither_keras_nor_jem_tf_exist(version, model, images, tmp_path):
    np.save(tmp_path / "x.npy", images[0][:3])
    program = f"""
import sys
sys.modules["keras"] = sys.modules["jem_tf"] = None
import numpy as np, tensorflow as tf
loaded = tf.saved_model.load({str(version)!r})
x = tf.constant(np.load({str(tmp_path / "x.npy")!r}))
print(loaded.signatures["energy"](inputs=x)["energy"].numpy().tolist())
loaded.signatures["sample"](labels=tf.constant([1]), seeds=tf.constant([3]))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    energies = json.loads(result.stdout.splitlines()[-1])
    np.testing.assert_allclose(energies, model.energy(images[0][:3]), rtol=1e-5)


def test_warm_up_records_replay(version, served):
    """Each is a `PredictionLog` that its signature answers, for every batch size."""
    from tensorflow_serving.apis import prediction_log_pb2

    file = version / "assets.extra" / "tf_serving_warmup_requests"
    seen = set()
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.name == "images"
        name = request.model_spec.signature_name
        tensors = {k: tf.constant(tf.make_ndarray(v)) for k, v in request.inputs.items()}
        answer = served[name](**tensors)
        batch = next(iter(tensors.values())).shape[0]
        assert all(value.shape[0] == batch for value in answer.values())
        seen.add((name, batch))
    sizes = {name: (1,) if name == "sample" else (1, 2, 4, 8, 16, 32) for name in served}
    assert seen == {(name, batch) for name in served for batch in sizes[name]}


def test_vectors_have_no_image_signatures(make_model, blobs, tmp_path):
    model = make_model()
    model.fit(*blobs, verbose=0)
    path = jem_tf.export(model, tmp_path / "table", calibrate=blobs, sample_steps=1)
    names = set(tf.saved_model.load(str(path)).signatures)
    assert names == ALWAYS | {"refine", "sample"}


def test_without_calibration_nothing_is_flagged(make_model, blobs, tmp_path):
    path = jem_tf.export(make_model(), tmp_path / "plain")
    served = tf.saved_model.load(str(path)).signatures
    assert set(served) == ALWAYS
    assert not served["serving_default"](inputs=blobs[0])["is_ood"].numpy().any()


def test_numbers_that_are_none_are_out_of_distribution(served, images):
    x = images[0][:3].copy()
    x[1, 0] = np.nan
    assert served["serving_default"](inputs=x)["is_ood"].numpy()[1]
    scores = served["ood_score"](inputs=x)
    assert scores["is_ood"].numpy()[1] and scores["percentile"].numpy()[1] == 0


def test_mala_models_have_no_signature_that_depends_on_the_batch(make_model, blobs, tmp_path):
    model = make_model(sampler=jem_tf.MALA(2))
    model.fit(*blobs, verbose=0)
    path = jem_tf.export(model, tmp_path / "mala", calibrate=blobs)
    assert set(tf.saved_model.load(str(path)).signatures) == ALWAYS


def test_subclassed_models_are_exported(blobs, tmp_path):
    model = jem_tf.JEM(Subclassed(), sampler=jem_tf.SGLD(2))
    model.compile("adam")
    model.fit(*blobs, verbose=0)
    path = jem_tf.export(model, tmp_path / "own", calibrate=blobs, sample_steps=2)
    logits = tf.saved_model.load(str(path)).signatures["logits"](inputs=blobs[0])["logits"]
    np.testing.assert_allclose(logits, model.predict(blobs[0], verbose=0), rtol=1e-5, atol=1e-5)


class Subclassed(keras.Model):
    """A user's own model, which says nothing about its shapes."""

    def __init__(self):
        super().__init__()
        self.hidden, self.last = keras.layers.Dense(8, "silu"), keras.layers.Dense(3)

    def call(self, x):
        return self.last(self.hidden(x))


def test_bad_requests_are_named(model, images, tmp_path):
    with pytest.raises(ValueError, match="Received: 3"):
        jem_tf.export(model, tmp_path, class_names=("a", "b", "c"))
    with pytest.raises(ValueError, match=r"shape \(6, 6, 2\)"):
        odd = jem_tf.JEM(backbones.convnet((6, 6, 2), 2, width=4))
        jem_tf.export(odd, tmp_path, pixel_range=(0, 1))
    with pytest.raises(ValueError, match="label for every row"):
        jem_tf.export(model, tmp_path, calibrate=images[0])


def test_inspect_tells_what_there_is(version, capsys):
    assert cli.main(["inspect", str(version.parent)]) == 0
    text = capsys.readouterr().out
    assert "serving_default: inputs float32[?, 6, 6, 1]" in text
    assert "probabilities float32[?, 2]" in text
    assert 'class_names: ["dark", "light"]' in text
    assert "temperature: " in text


def test_inspecting_nothing_says_so(tmp_path):
    with pytest.raises(ValueError, match="no SavedModel"):
        inspection.describe(tmp_path)
