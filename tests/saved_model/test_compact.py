"""Compact models: the same function, in archives of less than half the size."""

import lzma

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf import backbones
from jem_tf.saved_model.compact import DETECTOR_BYTES, compact


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    network = backbones.resnet((16, 16, 3), 5, width=16, dtype="mixed_bfloat16")
    model = jem_tf.JEM(network, sampler=jem_tf.SGLD(2), start=jem_tf.GaussianMixture(), seed=0)
    rng = np.random.default_rng(0)
    model.adapt(rng.uniform(-1, 1, (200, 16, 16, 3)).astype("f4"), np.arange(200) % 5)
    return model


def packed_size(arrays):
    return len(lzma.compress(b"".join(np.asarray(a).tobytes() for a in arrays)))


def test_a_compact_network_computes_the_same_and_compresses(model):
    x = np.random.default_rng(1).uniform(-1, 1, (32, 16, 16, 3)).astype("f4")
    arrays = lambda: [*model.backbone.get_weights(), *model.start.arrays().values()]  # noqa: E731
    before, size = model.predict(x, verbose=0), packed_size(arrays())
    old = arrays()
    model.detector.assign(anything=np.zeros(3, np.float32))
    compact(model)
    np.testing.assert_array_equal(model.predict(x, verbose=0), before)
    assert packed_size(arrays()) < 0.5 * size
    for a, b in zip(old, arrays(), strict=True):
        np.testing.assert_allclose(a, b, rtol=2**-8)  # 8 bits of precision
    assert (
        model.detector.rounds
        and not model.detector.arrays()
        and model.detector.max_bytes == DETECTOR_BYTES
    )
