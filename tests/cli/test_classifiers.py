"""`jem-tf train --from` and `export --calibrate`: from a trained Keras classifier to a verdict."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf import data
from jem_tf_cli import main

QUICK = ["--epochs", "1", "--batch-size", "120", "--objective", "cross_entropy"]


@pytest.fixture(scope="module")
def classifier(small, tmp_path_factory):
    """A file with a trained classifier of pixels 0 to 255 that ends in softmax."""
    layers = [
        keras.Input((4, 4, 1)),
        keras.layers.Rescaling(1 / 127.5, offset=-1),
        keras.layers.Flatten(),
        keras.layers.Dense(8, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(2, activation="softmax"),
    ]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.03), "sparse_categorical_crossentropy")
    x, y = data.load(small).with_pixels(0, 255).arrays("train")
    model.fit(x, y, epochs=8, verbose=0)
    file = tmp_path_factory.mktemp("classifier") / "mine.keras"
    model.save(file)
    return file


@pytest.mark.slow
def test_a_run_begins_with_a_classifier_and_can_be_repeated(classifier, small, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", small, "--from", str(classifier), *QUICK, "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "softmax at the end" in text and "0 to 255" in text
    assert float(text.split("accuracy of ")[1].split("%")[0]) > 95
    config = json.loads((out / "config.json").read_text())
    assert config["from"] == str(classifier) and config["data"]["pixel_range"] == [0, 255]
    layers = [type(layer).__name__ for layer in jem_tf.load(out).backbone.layers]
    assert "BatchNormalization" in layers and "Dropout" in layers
    again = tmp_path / "again"
    assert main(["train", "--recipe", str(out / "recipe.toml"), "--out", str(again)]) == 0
    assert json.loads((again / "config.json").read_text()) == config
    assert main(["train", "--resume", str(out)]) == 0


@pytest.mark.slow
def test_a_run_begins_with_another_run(trained, small, tmp_path, capsys):
    out = tmp_path / "run"
    flags = ["--from", str(trained), *QUICK, "--out", str(out)]
    assert main(["train", small, *flags]) == 0
    assert "accuracy of" in capsys.readouterr().out


def test_a_classifier_of_other_classes_or_in_no_file_is_an_error(classifier, tmp_path, capsys):
    assert main(["train", "digits", "--from", str(classifier), "--out", str(tmp_path / "a")]) == 2
    error = capsys.readouterr().err
    assert "10 classes" in error and "outputs of shape (2,)" in error
    assert main(["train", "digits", "--from", str(tmp_path / "no.keras")]) == 2
    assert "no trained model" in capsys.readouterr().err


@pytest.mark.slow
def test_a_classifier_with_other_pixels_is_noticed(classifier, small, tmp_path):
    flags = ["--from", str(classifier), *QUICK, "--pixel-range", "5", "-5"]
    with pytest.warns(UserWarning, match="near chance.*--pixel-range"):
        assert main(["train", small, *flags, "--out", str(tmp_path / "run")]) == 0


def test_a_saved_model_of_keras_2_is_a_classifier_to_begin_with(small, tmp_path, capsys):
    import tf_keras

    layers = [tf_keras.layers.Flatten(), tf_keras.layers.Dense(2, activation="softmax")]
    old = tf_keras.Sequential([tf_keras.Input((4, 4, 1)), *layers])
    weights = np.stack([np.full(16, -1.0), np.full(16, 1.0)], axis=1)
    old.set_weights([weights, np.zeros(2)])
    old.save(tmp_path / "old", save_format="tf")
    flags = ["--from", str(tmp_path / "old"), *QUICK, "--out", str(tmp_path / "run")]
    assert main(["train", small, *flags]) == 0
    assert "softmax at the end" in capsys.readouterr().out
    tf.saved_model.save(tf.Module(), str(tmp_path / "bare"))
    assert main(["train", small, "--from", str(tmp_path / "bare")]) == 2
    assert "no Keras model" in capsys.readouterr().err


@pytest.mark.slow
def test_a_classifier_is_exported_without_a_run(classifier, small, tmp_path, capsys):
    out = tmp_path / "models" / "mine"
    assert main(["export", str(classifier), "--out", str(out)]) == 2
    assert "--calibrate DATA" in capsys.readouterr().err
    assert main(["export", str(classifier), "--calibrate", small, "--out", str(out)]) == 0
    metadata = json.loads((out / "1" / "assets.extra" / "jem.json").read_text())
    assert metadata["pixel_range"] == [0, 255] and metadata["detector"]["rows"] > 0
    assert metadata["test"]["accuracy"] > 0.9
    served = tf.saved_model.load(str(out / "1")).signatures
    assert {"serving_default", "logits", "energy", "ood_score", "gradient"} <= set(served)
    assert not {"sample", "refine"} & set(served)
    x, _ = data.load(small).with_pixels(0, 255).arrays("test")
    probabilities = keras.ops.softmax(served["logits"](inputs=tf.constant(x))["logits"])
    expected = keras.saving.load_model(classifier).predict(x, verbose=0)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-4, atol=1e-5)
