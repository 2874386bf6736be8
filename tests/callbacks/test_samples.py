"""Pictures of chains while training."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import jem_tf
from jem_tf.callbacks import SampleGrid


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return rng.uniform(0.0, 5.0, (64, 4, 4, 1)).astype(np.float32), np.arange(64) % 2


def test_chains_are_drawn_in_the_range_of_the_data(images, tmp_path):
    layers = [keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(2)]
    model = jem_tf.JEM(keras.Sequential(layers), sampler=jem_tf.SGLD(1, 1e-9, noise=0), seed=1)
    model.compile("adam")
    drawer = SampleGrid(tmp_path / "chains", every=2, count=20, tensorboard=tmp_path / "logs")
    model.fit(*images, epochs=4, verbose=0, callbacks=[drawer])
    names = sorted(path.name for path in (tmp_path / "chains").iterdir())
    assert names == ["epoch-0002.png", "epoch-0004.png"]
    picture = np.asarray(Image.open(tmp_path / "chains" / names[1])).astype(float)
    first = picture[:48, :48]  # the first chain, 12 pixels a value
    values = model.buffer.arrays()["chains"][0, 0, :, :, 0]
    low, high = images[0].min(), images[0].max()
    expected = np.clip((values - low) / (high - low), 0, 1) * 255
    np.testing.assert_allclose(first[6::12, 6::12], expected, atol=1)
    drawer._writer.close()
    (events,) = (tmp_path / "logs").iterdir()
    records = tf.compat.v1.train.summary_iterator(str(events))
    assert [v.tag for record in records for v in record.summary.value] == ["chains", "chains"]


def test_wrong_use_is_named(make_model, blobs, tmp_path):
    with pytest.raises(ValueError, match="every=0"):
        SampleGrid(tmp_path, every=0)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        make_model().fit(*blobs, verbose=0, callbacks=[SampleGrid(tmp_path)])
