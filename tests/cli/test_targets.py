"""What commands accept as a model: the data of runs and exports, and comparable models."""

import json

import keras
import pytest

from jem_tf.cli import targets


@pytest.fixture
def export_of(tmp_path):
    """A function that writes a version directory with metadata, without a model."""

    def write(name, **metadata):
        version = tmp_path / name / "1"
        (version / "assets.extra").mkdir(parents=True)
        (version / "saved_model.pb").touch()
        (version / "assets.extra" / "jem.json").write_text(json.dumps(metadata))
        return tmp_path / name

    return write


def test_data_is_that_of_the_run_or_of_the_export_or_the_named_one(trained, small, export_of):
    assert targets.load_data(trained, None, None).name == "small"
    assert targets.load_data(export_of("digits", data="digits"), None, None).name == "digits"
    assert targets.load_data("grpc://host:1/model", small, None).name == "small"
    assert targets.load_data(trained, "digits", None).name == "digits"


def test_pixels_are_those_that_the_model_expects(run, trained, export_of, tmp_path):
    config = json.loads((run / "config.json").read_text())
    config["data"]["pixel_range"] = [0, 255]
    (run / "config.json").write_text(json.dumps(config))
    layers = [keras.Input((8, 8, 1)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
    keras.Sequential(layers).save(tmp_path / "mine.keras")
    for target in (run, export_of("a", pixel_range=[0, 255]), tmp_path / "mine.keras"):
        assert targets.load_data(target, "digits", None).arrays("test")[0].max() == 255
    for target in (trained, export_of("b"), "grpc://host:1/model"):
        assert targets.load_data(target, "digits", None).arrays("test")[0].max() == 1


def test_errors_say_which_data_is_not_known(export_of, tmp_path):
    with pytest.raises(ValueError, match="does not name its training data: use --dataset"):
        targets.load_data(tmp_path / "model.keras", None, None)
    with pytest.raises(ValueError, match="trained on 'cats', which is not a known data set"):
        targets.load_data(export_of("cats", data="cats"), None, None)


def test_models_of_other_classes_cannot_be_compared(trained, export_of):
    same = export_of("same", class_names=["0", "1"])
    other = export_of("other", class_names=["x", "y"])
    unknown = export_of("unknown")
    targets.check_comparable(trained, same)
    targets.check_comparable(trained, unknown)
    with pytest.raises(ValueError, match=r"other classes \(x, y\) than .* \(0, 1\)"):
        targets.check_comparable(trained, other)


def test_models_that_expect_other_pixels_cannot_be_compared(trained, export_of):
    bright = export_of("bright", pixel_range=[0, 255])
    with pytest.raises(ValueError, match=r"bright.* expects pixels from 0 to 255, and .*-1 to 1"):
        targets.check_comparable(trained, bright, "judge", (-1.0, 1.0))
    with pytest.raises(ValueError, match=r"expects pixels from -1 to 1, and .*0 to 255"):
        targets.check_comparable(bright, trained, "judge", (0.0, 255.0))
    targets.check_comparable(trained, bright, "judge", (0.0, 255.0))
    targets.check_comparable(trained, bright, "judge")  # no images


def test_a_model_is_not_compared_with_itself(trained):
    with pytest.raises(ValueError, match="The baseline must be another model than"):
        targets.check_comparable(trained, str(trained))
