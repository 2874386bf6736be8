"""What scores: files, runs with and without their data, endpoints, and the pixels they expect."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import jem_tf
from jem_tf import data
from jem_tf.client import ServingError
from jem_tf.scoring import batches, scorers
from scoring.tables import read, values


def test_a_run_is_calibrated_and_a_file_is_not(trained, small, tmp_path):
    """A run has the verdict that its export would have."""
    run = read(jem_tf.score(trained, small, tmp_path / "run.parquet").out)
    assert all(0 < row["p_value"] <= 1 for row in run)
    file = read(jem_tf.score(trained / "model.keras", small, tmp_path / "file.parquet").out)
    np.testing.assert_allclose(values(file, "energy"), values(run, "energy"), rtol=1e-4)
    assert all(row["p_value"] is row["is_ood"] is None for row in file)


@pytest.fixture(scope="module")
def rescaling(tmp_path_factory):
    """A file with a classifier of digits whose pixels are 0 to 255."""
    layers = [keras.Input((8, 8, 1)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
    keras.utils.set_random_seed(0)
    file = tmp_path_factory.mktemp("rescaling") / "mine.keras"
    keras.Sequential([*layers, keras.layers.Dense(10)]).save(file)
    return file


def scaled_energy(file, x):
    return -tf.reduce_logsumexp(keras.saving.load_model(file)(x), -1)


def test_files_are_scaled_as_a_classifier_expects(rescaling, tmp_path):
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    Image.fromarray(pixels).save(tmp_path / "a.png")
    for options, scaled in (
        ({}, pixels),
        ({"pixel_range": (-1, 1)}, pixels / 127.5 - 1),
        ({"pixel_range": (0, 1)}, pixels / 255),
    ):
        out = tmp_path / f"{len(options)}.parquet"
        summary = jem_tf.score(rescaling, tmp_path / "a.png", out, overwrite=True, **options)
        expected = scaled_energy(rescaling, scaled[None, :, :, None])
        assert read(summary.out)[0]["energy"] == pytest.approx(float(expected[0]), rel=1e-4)


def test_rows_of_a_data_set_are_scaled_as_a_classifier_expects(rescaling, tmp_path):
    x, _ = data.load("digits").with_pixels(0, 255).arrays("test")
    rows = read(jem_tf.score(rescaling, "digits", tmp_path / "a.parquet").out)
    np.testing.assert_allclose(values(rows, "energy"), scaled_energy(rescaling, x), rtol=1e-4)


def test_a_run_without_its_data_has_the_pixels_of_its_config(run):
    config = json.loads((run / "config.json").read_text())
    config["data"] |= {"dataset": "gone.npz", "pixel_range": [0, 255]}
    (run / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="not calibrated"):
        assert tuple(scorers.open_scorer(run).pixel_range) == (0, 255)


def test_a_run_without_its_data_is_scored_without_a_verdict(run, images, small, tmp_path):
    config = json.loads((run / "config.json").read_text())
    config["data"]["dataset"] = str(tmp_path / "gone.npz")
    (run / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="not calibrated and there is no verdict"):
        summary = jem_tf.score(run, small, tmp_path / "scores.parquet")
    assert summary.rows == 480 and summary.out_of_distribution is None


@pytest.fixture(scope="module")
def addresses(exported, shared_servers):
    base = str(exported / "images")
    return shared_servers(model_name="images", model_base_path=base).addresses


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_an_endpoint_scores_files_and_arrays(
    transport, addresses, export, photos, images, tmp_path
):
    """The server decodes the files; the broken one alone has an error."""
    address = addresses[transport]
    model = f"{address if '://' in address else f'grpc://{address}'}/images"
    files = sorted(path for path in photos.rglob("*") if path.is_file())  # BMP files among them
    files[4].write_bytes(b"broken")
    rows = read(jem_tf.score(model, files, tmp_path / "a.parquet", batch_size=7).out)
    local = read(jem_tf.score(export, files, tmp_path / "b.parquet").out)
    assert [row["id"] for row in rows if row["error"]] == [str(files[4])]
    assert [row["class"] for row in rows] == [row["class"] for row in local]
    np.testing.assert_allclose(values(rows, "energy"), values(local, "energy"), rtol=1e-3)
    arrays = read(jem_tf.score(model, images[0][:20], tmp_path / "c.parquet").out)
    expected = read(jem_tf.score(export, images[0][:20], tmp_path / "d.parquet").out)
    assert all(row["label"] is None for row in rows)  # an endpoint does not list its classes
    np.testing.assert_allclose(values(arrays, "energy"), values(expected, "energy"), rtol=1e-3)


def limited(size, message, code="RESOURCE_EXHAUSTED"):
    """A model behind a server that takes at most `size` inputs, none of them negative."""

    def call(x):
        if len(x) > size:
            raise ServingError(code, message, "here")
        if (x < 0).any():
            raise ServingError("INVALID_ARGUMENT", "negative", "here")
        return {"y": x}

    return call


def test_a_request_that_is_too_large_is_sent_in_halves():
    x, places, errors = np.array([1, 2, -3, 4, 5]), np.arange(5), {}
    call = limited(2, "The request body is larger than 2 bytes.")
    parts = list(batches._score_parts(call, x, places, errors))
    assert np.concatenate([rows for rows, _ in parts]).tolist() == [0, 1, 3, 4]
    assert np.concatenate([out["y"] for _, out in parts]).tolist() == [1, 2, 4, 5]
    assert list(errors) == [2] and "negative" in errors[2]


def test_an_input_that_is_too_large_has_an_error_and_a_busy_server_ends_the_run():
    errors = {}
    call = limited(0, "Received message larger than max (5 vs. 4)")
    assert list(batches._score_parts(call, np.ones(2), np.arange(2), errors)) == []
    assert sorted(errors) == [0, 1]
    for call in (limited(0, "Too many concurrent requests."), limited(9, "gone", "UNAVAILABLE")):
        with pytest.raises(ServingError):
            list(batches._score_parts(call, np.ones(10), np.arange(10), {}))
