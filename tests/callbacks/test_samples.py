"""`SampleGrid`: pictures of chains while training."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import jem_tf
from jem_tf.callbacks import SampleGrid


def test_chains_are_drawn_in_the_range_of_the_data(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.0, 5.0, (64, 4, 4, 1)).astype(np.float32), np.arange(64) % 2
    layers = [keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(2)]
    model = jem_tf.JEM(keras.Sequential(layers), sampler=jem_tf.SGLD(1, 1e-9, noise=0), seed=1)
    model.compile("adam", run_eagerly=True)
    grid = SampleGrid(tmp_path / "chains", every=2, count=20, tensorboard=tmp_path / "logs")
    model.fit(x, y, batch_size=64, epochs=4, verbose=0, callbacks=[grid])
    names = sorted(path.name for path in (tmp_path / "chains").iterdir())
    assert names == ["epoch-0002.png", "epoch-0004.png"]
    with Image.open(tmp_path / "chains" / names[1]) as picture:
        pixels = np.asarray(picture).astype(float)
    first_chain = pixels[:48, :48]  # 12 pixels a value
    values = model.stored_chains()[0, :, :, 0]
    expected = np.clip((values - x.min()) / (x.max() - x.min()), 0, 1) * 255
    np.testing.assert_allclose(first_chain[6::12, 6::12], expected, atol=1)
    grid._writer.close()
    (events,) = (tmp_path / "logs").iterdir()
    records = tf.compat.v1.train.summary_iterator(str(events))
    assert [v.tag for record in records for v in record.summary.value] == ["chains", "chains"]


def test_errors_quote_wrong_arguments_and_shapes(make_model, blobs, tmp_path):
    with pytest.raises(ValueError, match="every=0"):
        SampleGrid(tmp_path, every=0)
    model = make_model()
    model.compile("adam", run_eagerly=True)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        model.fit(*blobs, batch_size=300, verbose=0, callbacks=[SampleGrid(tmp_path)])
