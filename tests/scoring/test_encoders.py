"""`jem_tf.score` with models that have an encoder: photos, text and token ids."""

import keras
import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import jem_tf


def read(path):
    return pq.read_table(path).to_pylist()


def values(rows, name):
    return np.array([row[name] for row in rows], float)


def encoded(encoder):
    """A model of two classes on the vectors of `encoder`."""
    head = keras.Sequential([keras.Input(encoder.output_shape[1:]), keras.layers.Dense(2)])
    return jem_tf.JEM(head, encoder=encoder)


def test_photos_reach_an_encoder_with_the_pixels_that_it_expects(photos, tmp_path):
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.GlobalAveragePooling2D()]
    model = encoded(keras.Sequential([keras.Input((6, 6, 1)), *layers]))
    model.save(tmp_path / "model.keras")
    rows = read(jem_tf.score(tmp_path / "model.keras", photos, tmp_path / "s.parquet").out)
    assert len(rows) == 40 and not any(row["error"] for row in rows)
    small = [row for row in rows if row["id"].endswith("png")]
    files = [tf.io.decode_png(tf.io.read_file(row["id"])) for row in small]
    x = np.stack([tf.image.resize(file, (6, 6), "area") for file in files])
    np.testing.assert_allclose(values(small, "energy"), model.energy(x), rtol=1e-3, atol=1e-4)


def test_text_is_scored_and_other_rows_are_refused_in_words(photos, images, tmp_path):
    words = keras.layers.TextVectorization(output_mode="multi_hot", vocabulary=["sun", "sea"])
    model = encoded(keras.Sequential([keras.Input((), dtype="string"), words]))
    texts = np.array(["sun", "sea sun", "?"])
    np.savez(tmp_path / "texts.npz", x=texts)
    for data in (texts, tmp_path / "texts.npz"):
        rows = read(jem_tf.score(model, data, tmp_path / "s.parquet", overwrite=True).out)
        np.testing.assert_allclose(values(rows, "energy"), model.energy(texts), rtol=1e-5)
    for data, received in ((photos, "image files"), (images[0], "rows of float32")):
        with pytest.raises(ValueError, match=f"takes text.*Received: {received}"):
            jem_tf.score(model, data, tmp_path / "t.parquet", overwrite=True)
    numbers = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match=r"numbers of type float32\. Received: rows of <U7"):
        jem_tf.score(numbers, texts, tmp_path / "t.parquet", overwrite=True)


def test_token_ids_are_scored(tmp_path):
    layers = [keras.layers.Embedding(9, 2), keras.layers.Flatten()]
    model = encoded(keras.Sequential([keras.Input((3,), dtype="int32"), *layers]))
    x = np.arange(9).reshape(3, 3)
    rows = read(jem_tf.score(model, x, tmp_path / "s.parquet").out)
    np.testing.assert_allclose(values(rows, "energy"), model.energy(x), rtol=1e-5)
