"""Networks in bfloat16: which layers, how much is rounded, and that nothing else changes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import jem_tf
from jem_tf._tf import precision

RNG = np.random.default_rng(0)


def make_network():
    """With preprocessing, a model inside, a wrapped layer and an activation after the logits."""
    inner = keras.Sequential(
        [layers.Conv2D(16, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]
    )
    wrapped = layers.SpectralNormalization(layers.Conv2D(8, 3, strides=2))
    return keras.Sequential(
        [
            keras.Input((9, 9, 3)),
            layers.Rescaling(1 / 255),
            inner,
            wrapped,
            layers.Flatten(),
            layers.Dense(12, activation="silu"),
            layers.Dense(4),
            layers.Activation("linear"),
        ]
    )


def test_from_the_first_convolution_to_the_layer_before_the_logits():
    body = [type(layer).__name__ for layer in precision._body(make_network())]
    names = ["Conv2D", "BatchNormalization", "ReLU", "SpectralNormalization", "Conv2D"]
    assert body == [*names, "Flatten", "Dense"]


def test_layers_with_a_type_of_their_own_keep_it():
    network = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(2, 3, dtype="float64"),
            layers.Conv2D(2, 3),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )
    assert [layer.name for layer in precision._body(network)] == [
        layer.name for layer in network.layers[1:3]
    ]


def values_and_gradients(call, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = call(x)
    return y, tape.gradient(y, x)


def test_a_network_is_that_of_keras_policy():
    """Layer by layer in `mixed_bfloat16`, with a last layer in float32. In a graph, TensorFlow may
    fuse layers of the two in different ways, and max pooling then takes other pixels."""
    single = jem_tf.backbones.resnet((16, 16, 3), 5, width=4)
    mixed = jem_tf.backbones.resnet((16, 16, 3), 5, width=4, dtype="mixed_bfloat16")
    single.layers[-2].dtype_policy = "float32"
    mixed.set_weights(single.get_weights())
    x = tf.constant(RNG.uniform(-1, 1, (6, 16, 16, 3)), tf.float32)
    values = values_and_gradients(lambda x: precision.in_bfloat16(single)(x), x)
    for value, expected in zip(values, values_and_gradients(mixed, x)):
        assert np.linalg.norm(value - expected) < 5e-3 * np.linalg.norm(expected)


def test_outputs_and_gradients_differ_by_rounding_only():
    """Eight bits of each factor are 0.4 %, and a few layers follow each other; where a rectifier is
    near zero, its gradient may change as a whole. Zero would mean that nothing was rounded."""
    network = make_network()
    x = tf.constant(RNG.uniform(0, 255, (6, 9, 9, 3)), tf.float32)
    weights = network.get_weights()
    in_graph = tf.function(values_and_gradients)
    values = in_graph(lambda x: precision.in_bfloat16(network)(x), x)
    for value, expected in zip(values, in_graph(network, x)):
        assert value.dtype == tf.float32
        error = np.linalg.norm(value - expected) / np.linalg.norm(expected)
        assert 1e-4 < error < 5e-2
    assert all(layer.compute_dtype == "float32" for layer in precision.flatten_layers(network))
    for weight, expected in zip(network.get_weights(), weights):
        np.testing.assert_array_equal(weight, expected)


def test_kernels_are_cast_once_and_not_in_a_loop():
    network = make_network()

    @tf.function
    def run(x):
        call = precision.in_bfloat16(network)
        return tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, call(x)), [0, tf.zeros((2, 4))]
        )

    graph = run.get_concrete_function(tf.zeros((2, 9, 9, 3))).graph.as_graph_def()
    (loop,) = [node for node in graph.node if node.op.endswith("While")]
    kernels = [kind for kind in loop.attr["T"].list.type if tf.as_dtype(kind) == tf.bfloat16]
    assert len(kernels) == 3  # enter the loop: of two convolutions and a dense layer


def test_an_error_inside_restores_the_layers():
    network = make_network()
    with pytest.raises(Exception, match=r"incompatible|expected"):
        precision.in_bfloat16(network)(tf.zeros((2, 9, 9, 5)))
    assert all(layer.compute_dtype == "float32" for layer in precision.flatten_layers(network))


def test_networks_of_vectors_and_custom_models_are_left_alone():
    class Custom(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = make_network()

        def call(self, x):
            return self.inner(x)

    assert precision.suits(make_network())
    assert not precision.suits(jem_tf.backbones.mlp((4,), 3))
    assert not precision.suits(Custom())


@pytest.mark.parametrize("flags, gains", [("fpu avx512_bf16", True), ("fpu avx512f", False)])
def test_the_flags_of_the_processor_decide(monkeypatch, flags, gains):
    monkeypatch.setattr(precision.Path, "read_text", lambda _: f"flags\t\t: {flags}\n")
    monkeypatch.setattr(precision.tf.config, "get_visible_devices", lambda _: [])
    assert precision.hardware_gains.__wrapped__() is gains


@pytest.mark.parametrize("capability, gains", [((8, 0), True), ((7, 5), False), (None, False)])
def test_the_capability_of_a_gpu_decides(monkeypatch, capability, gains):
    details = {} if capability is None else {"compute_capability": capability}
    monkeypatch.setattr(precision.tf.config, "get_visible_devices", lambda _: ["GPU:0"])
    monkeypatch.setattr(precision.tf.config.experimental, "get_device_details", lambda _: details)
    assert precision.hardware_gains.__wrapped__() is gains
