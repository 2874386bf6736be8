"""Backbones: those that do not end in logits raise, and any number of rows can be computed."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf import backbones
from jem_tf.model.backbone import call_allowing_empty


def network(*layers):
    return keras.Sequential([keras.Input((2,)), *layers])


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (lambda: network(keras.layers.Dense(3, activation="softmax")), "ending in softmax"),
        (lambda: network(keras.layers.Dense(3), keras.layers.Softmax()), "softmax"),
        (
            lambda: network(keras.layers.Dense(3), keras.layers.Activation("softmax")),
            "ending in softmax",
        ),
        (lambda: network(keras.layers.Dense(3, activation="sigmoid")), "ending in sigmoid"),
        (
            lambda: network(network(keras.layers.Dense(3, activation="softmax"))),
            "ending in softmax",
        ),
        (lambda: network(keras.layers.Dense(1, activation="sigmoid")), r"sigmoid.*Dense\(2\)"),
        (lambda: network(keras.layers.Dense(1)), r"Dense\(2\).*output shape \(None, 1\)"),
        (
            lambda: network(keras.layers.Dense(4), keras.layers.Reshape((2, 2))),
            r"output shape \(None, 2, 2\)",
        ),
    ],
)
def test_backbones_that_do_not_end_in_logits_raise(backbone, message):
    with pytest.raises(ValueError, match=message):
        jem_tf.JEM(backbone())


@pytest.mark.parametrize("objective", ["joint", "cross_entropy"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_token_ids_raise_at_once_and_name_the_way_out(objective, dtype):
    pooled = [keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(2)]
    layers = [keras.Input((7,), dtype=dtype), keras.layers.Embedding(50, 4), *pooled]
    with pytest.raises(ValueError, match=r"real numbers.*JEM\(head, encoder=encoder\)"):
        jem_tf.JEM(keras.Sequential(layers), objective=objective)
    nested = keras.Sequential([keras.Sequential(layers), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="real numbers"):
        jem_tf.JEM(nested, objective=objective)


def test_several_inputs_raise_in_words(make_model, blobs):
    first, second = keras.Input((8,), name="first"), keras.Input((4,), name="second")
    both = keras.layers.Concatenate()([first, second])
    with pytest.raises(ValueError, match=r"one input tensor.*first \(None, 8\), second"):
        jem_tf.JEM(keras.Model([first, second], keras.layers.Dense(2)(both)))
    x, y = blobs
    for data in ({"a": x, "b": x}, tf.data.Dataset.from_tensor_slices(((x, x), y)).batch(50)):
        with pytest.raises(ValueError, match="one input tensor"):
            make_model().fit(data, y if isinstance(data, dict) else None, verbose=0)


def test_a_backbone_must_be_a_model():
    with pytest.raises(TypeError, match="Dense"):
        jem_tf.JEM(keras.layers.Dense(3))


class Probabilities(keras.Model):
    """A softmax that no layer shows."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return keras.ops.softmax(self.dense(x))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 3)


def test_probabilities_of_a_custom_model_raise_when_data_is_seen(blobs):
    model = jem_tf.JEM(Probabilities())
    model.compile("adam")
    with pytest.raises(ValueError, match="rows that are probabilities"):
        model.fit(*blobs, verbose=0)


def test_networks_that_ignore_training_mode_take_one_pass(make_model):
    assert make_model().one_pass
    assert jem_tf.JEM(backbones.wide_resnet((8, 8, 1), 2, 10, 1)).one_pass
    for layer in (keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)):
        assert not jem_tf.JEM(network(layer, keras.layers.Dense(3))).one_pass
        assert not jem_tf.JEM(network(network(layer), keras.layers.Dense(3))).one_pass


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_empty_batches_have_the_shape_of_others(rows):
    """oneDNN's convolutions give an empty batch the wrong shape."""
    model = keras.Sequential(
        [keras.Input((8, 8, 1)), keras.layers.Conv2D(4, 3), keras.layers.Flatten()]
    )
    x = np.random.default_rng(0).normal(size=(rows, 8, 8, 1)).astype(np.float32)
    spec = tf.TensorSpec([None, 8, 8, 1])
    call = tf.function(lambda x: call_allowing_empty(model, x), input_signature=[spec])
    outputs = call(x).numpy()
    assert outputs.shape == (rows, 144)
    if rows:
        np.testing.assert_allclose(outputs, model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": jem_tf.SGLD},
        {"buffer": 1000},
        {"start": "uniform"},
        {"augmentation": "flip"},
    ],
)
def test_parts_of_another_kind_raise(options, make_model):
    (name,) = options
    with pytest.raises(TypeError, match=f"{name}.*Received: {name}="):
        make_model(**options)


def test_negative_input_noise_raises(make_model):
    with pytest.raises(ValueError, match="input_noise=-1"):
        make_model(input_noise=-1)
