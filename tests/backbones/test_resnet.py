"""The small residual network: its size, its precision, and how a JEM uses its batch norm."""

from itertools import pairwise

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf.backbones import resnet


def test_it_has_nine_layers_with_weights_and_the_size_of_its_docstring():
    network = resnet((32, 32, 3), 10, width=32)
    kinds = [type(layer).__name__ for layer in network.layers]
    assert kinds.count("Conv2D") == 8 and kinds.count("Dense") == 1
    assert network.output_shape == (None, 10)
    channels = [3, 32, 64, 64, 64, 128, 256, 256, 256]
    expected = sum(9 * a * b + 4 * b for a, b in pairwise(channels)) + 257 * 10
    assert network.count_params() == expected == 1_648_362


@pytest.mark.parametrize("shape", [(28, 28, 1), (7, 9, 3)])
def test_other_shapes_of_images(shape):
    x = np.random.default_rng(0).normal(size=(4, *shape)).astype("f4")
    assert resnet(shape, 3, width=4)(x).shape == (4, 3)
    with pytest.raises(ValueError, match="Received: shape=\\(5,\\)"):
        resnet((5,), 3)


def test_logits_are_single_precision_and_close_in_bfloat16():
    keras.utils.set_random_seed(0)
    single = resnet((8, 8, 3), 5, width=8)
    half = resnet((8, 8, 3), 5, width=8, dtype="mixed_bfloat16")
    half.set_weights(single.get_weights())
    x = np.random.default_rng(0).normal(size=(16, 8, 8, 3)).astype("f4")
    logits = half(x)
    assert logits.dtype == "float32" and half.layers[1].compute_dtype == "bfloat16"
    np.testing.assert_allclose(logits, single(x), atol=0.05 * np.abs(single(x)).max())


def test_energies_are_those_at_inference():
    model = jem_tf.JEM(resnet((8, 8, 3), 5, width=4), sampler=jem_tf.SGLD(2), seed=0)
    assert not model.one_pass  # batch norm acts on the classification term only
    x = np.random.default_rng(0).normal(size=(6, 8, 8, 3)).astype("f4")
    alone = [model.energy(row[None])[0] for row in x]
    np.testing.assert_allclose(model.energy(x), alone, rtol=1e-4, atol=1e-5)


def test_statistics_of_batch_norm_can_be_frozen(tmp_path):
    """Cross-entropy is then that of the network at inference, and moving means stay."""
    network = resnet((8, 8, 3), 5, width=4)
    model = jem_tf.JEM(network, sampler=jem_tf.SGLD(2), frozen_statistics=True, seed=0)
    model.compile(keras.optimizers.Adam(1e-3))
    x = np.random.default_rng(0).normal(size=(64, 8, 8, 3)).astype("f4")
    y = np.arange(64) % 5
    before = [v.numpy() for v in network.non_trainable_variables]
    kernel = network.trainable_variables[0].numpy()
    expected = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y, model.predict(x))
    history = model.fit(x, y, batch_size=64, epochs=1, verbose=0).history
    assert history["classification_loss"][0] == pytest.approx(float(expected), rel=0.05)  # noise
    for old, variable in zip(before, network.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(old, variable)
    assert not np.allclose(kernel, network.trainable_variables[0])
    assert model.one_pass  # both terms are of one function

    model.save(tmp_path / "model.keras")
    assert jem_tf.load(tmp_path / "model.keras").frozen_statistics
