"""The fused layers compute what those of Keras do."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf import backbones
from jem_tf.backbones import fused

IMAGES = np.random.default_rng(0).normal(1.0, 2.0, (16, 4, 6, 3)).astype("f4")


def value_and_gradients(layer, x, **options):
    """The outputs, and the gradients of a sum with different weights by x and by the weights."""
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, **options)
        loss = tf.reduce_sum(tf.sin(tf.range(tf.size(y), dtype="float32")) * tf.reshape(y, [-1]))
    return y, *tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])


def pair():
    layers = (
        fused.FusedBatchNormalization(epsilon=1e-5),
        keras.layers.BatchNormalization(epsilon=1e-5),
    )
    for layer in layers:
        layer.build(IMAGES.shape)
        weights = [[1, 2, 0.5], [0, 1, -1], [0.5, 0, 1], [1, 4, 2]]
        layer.set_weights(np.asarray(weights, "f4"))
    return layers


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_is_that_of_keras(training):
    layer, other = pair()
    found = value_and_gradients(layer, IMAGES, training=training)
    for value, expected in zip(found, value_and_gradients(other, IMAGES, training=training)):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


def test_moving_statistics_are_those_of_the_unbiased_estimates():
    layer, _ = pair()
    layer(IMAGES, training=True)
    rows = IMAGES.reshape(-1, 3)
    mean = 0.99 * np.array([0.5, 0.0, 1.0]) + 0.01 * rows.mean(0)
    variance = 0.99 * np.array([1.0, 4.0, 2.0]) + 0.01 * rows.var(0, ddof=1)
    np.testing.assert_allclose(layer.moving_mean, mean, rtol=1e-4)
    np.testing.assert_allclose(layer.moving_variance, variance, rtol=1e-4)


def test_nothing_is_learned_when_frozen():
    layer, _ = pair()
    layer.trainable = False
    before = layer.get_weights()
    expected = layer(IMAGES, training=False)
    np.testing.assert_array_equal(layer(IMAGES, training=True), expected)
    for old, new in zip(before, layer.get_weights()):
        np.testing.assert_array_equal(old, new)


def test_silu_of_bfloat16_is_that_of_single_precision_rounded():
    x = tf.cast(tf.linspace(-20.0, 20.0, 1001), tf.bfloat16)
    exact = np.asarray(x, "f8") / (1 + np.exp(-np.asarray(x, "f8")))
    expected = tf.cast(exact.astype("f4"), tf.bfloat16)
    np.testing.assert_array_equal(fused.silu(x), expected)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = fused.silu(x)
    sigmoid = 1 / (1 + np.exp(-np.asarray(x, "f8")))
    slope = sigmoid * (1 + np.asarray(x, "f8") * (1 - sigmoid))
    np.testing.assert_allclose(np.asarray(tape.gradient(y, x), "f4"), slope, rtol=2**-8, atol=1e-6)


def test_networks_in_pure_bfloat16_have_it(recwarn):
    network = backbones.resnet((8, 8, 1), 2, width=2, dtype="bfloat16")
    assert np.isfinite(network(np.ones((2, 8, 8, 1), "f4"), training=True)).all()


@pytest.mark.parametrize("options", [{"axis": 1}, {"scale": False}, {"center": False}])
def test_what_the_operation_cannot_do_is_refused(options):
    with pytest.raises(ValueError, match="Received: axis="):
        fused.FusedBatchNormalization(**options)


def test_they_are_saved_and_loaded(tmp_path):
    inputs = keras.Input((4, 6, 3))
    outputs = keras.layers.Activation(fused.silu)(fused.FusedBatchNormalization()(inputs))
    model = keras.Model(inputs, outputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(IMAGES), model(IMAGES))
