"""`jem-tf export` and `inspect`: a run becomes a version with its metadata."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from PIL import Image

import jem_tf
from jem_tf.cli.exporting import calibration_data
from jem_tf_cli import main


@pytest.fixture(scope="module")
def version(trained, tmp_path_factory):
    """The first export of the finished run."""
    out = tmp_path_factory.mktemp("models") / "small"
    flags = ["--out", str(out), "--sample-steps", "2", "--refine-steps", "1", "--no-examples"]
    assert main(["export", str(trained), *flags]) == 0
    return out / "1"


def test_an_export_says_what_it_was_trained_on_and_measured_with(version):
    metadata = json.loads((version / "assets.extra" / "jem.json").read_text())
    assert metadata["data"] == "small" and metadata["class_names"] == ["0", "1"]
    assert (metadata["sample_steps"], metadata["refine_steps"]) == (2, 1)
    assert metadata["test"]["rows"] == 96
    assert "serving_default_bytes" in metadata["signatures"]
    assert set(metadata["auroc"]) >= {"noise", "patches"}
    for scores in metadata["auroc"].values():
        assert set(scores) == {"fused", "gradient_norm", "log_density", "max_probability"}
        assert all(0 <= value <= 1 for value in scores.values())
    assert not (version / "assets.extra" / "examples.json").exists()


@pytest.mark.slow
def test_an_export_for_litert_gives_the_answers_of_the_saved_model(trained, tmp_path):
    out = tmp_path / "m"
    flags = ["--sample-steps", "1", "--refine-steps", "1", "--tflite"]
    assert main(["export", str(trained), "--out", str(out), *flags]) == 0
    interpreter = Interpreter(str(out / "1" / "assets.extra" / "model.tflite"))
    served = tf.saved_model.load(str(out / "1")).signatures
    x = np.random.default_rng(0).uniform(-1, 1, (3, 4, 4, 1)).astype(np.float32)
    names = {"serving_default": "probabilities", "logits": "logits", "energy": "energy"}
    assert set(interpreter.get_signature_list()) == set(names)
    for name, output in names.items():
        answers = interpreter.get_signature_runner(name)(inputs=x)[output]
        expected = served[name](inputs=tf.constant(x))[output]
        np.testing.assert_allclose(answers, expected, rtol=1e-3, atol=1e-4)


def test_calibration_photos_are_read_as_the_model_expects_them(run, tmp_path):
    """An encoder gets its own size and pixels, and a run those of its training."""
    for i in range(40):
        folder = tmp_path / "photos" / str(i % 2)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((12, 12), 255 * (i % 2), np.uint8)).save(folder / f"{i}.png")
    photos = str(tmp_path / "photos")
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.GlobalAveragePooling2D()]
    encoder = keras.Sequential([keras.Input((6, 6, 3)), *layers])
    head = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    data = calibration_data("m.keras", jem_tf.JEM(head, encoder=encoder), photos)
    assert data.shape == (6, 6, 3) and data.pixel_range == (0, 255)
    assert data.arrays("train")[0].max() == 255
    config = json.loads((run / "config.json").read_text())
    config["data"]["pixel_range"] = [0, 10]
    (run / "config.json").write_text(json.dumps(config))
    data = calibration_data(run, jem_tf.load(run), photos)
    assert data.shape[:2] == (4, 4) and data.pixel_range == (0, 10)
    assert calibration_data(run, jem_tf.load(run)).pixel_range == (0, 10)


def test_inspect_prints_signatures_and_metadata(version, capsys):
    assert main(["inspect", str(version.parent)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(str(version))
    assert "serving_default: inputs float32[?, 4, 4, 1]" in text
    assert 'class_names: ["0", "1"]' in text


def test_inspect_without_a_model_is_an_error(tmp_path, capsys):
    assert main(["inspect", str(tmp_path)]) == 2
    assert "no SavedModel" in capsys.readouterr().err
