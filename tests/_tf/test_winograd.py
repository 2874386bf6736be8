"""Convolutions by Winograd tiles: the numbers of SciPy and of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.signal import correlate

import jem_tf
from jem_tf._tf import winograd

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def assert_close(values, expected):
    """F(4x4, 3x3) in single precision: sums of some hundred terms, tile entries up to 100 times
    as large as pixels, so five digits of the largest value are left."""
    assert np.abs(values - expected).max() < 3e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    "shape", [(2, 8, 8), (3, 32, 32), (1, 32, 32), (1, 7, 9), (5, 4, 21), (2, 1, 3)]
)
def test_a_convolution_is_that_of_scipy(shape):
    x, kernel = normal(*shape, 5), normal(3, 3, 5, 4)
    y = winograd.convolution(tf.constant(x), winograd.transform(tf.constant(kernel)))
    expected = [  # the sum over channels: the middle of a correlation in three dimensions
        [correlate(image, kernel[..., f], mode="same")[..., 2] for f in range(4)] for image in x
    ]
    assert_close(y.numpy(), np.moveaxis(np.array(expected), 1, -1))


def make_network(channels=32):
    inputs = keras.Input((12, 10, channels))
    x = keras.layers.Conv2D(32, 3, padding="same", activation="silu")(inputs)
    inner = keras.Sequential([keras.layers.Conv2D(48, 3, padding="same")])
    x = keras.layers.Flatten()(inner(x))
    return keras.Model(inputs, keras.layers.Dense(3)(x))


def outputs_and_gradients(model, x):
    """Outputs, and gradients of the sum of their squares by inputs and weights, in a graph."""

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x)
            loss = tf.reduce_sum(y**2)
        return [y, *tape.gradient(loss, [x, *[w.value for w in model.trainable_weights]])]

    return [v.numpy() for v in run(tf.constant(x))]


@pytest.fixture
def calls(monkeypatch):
    """A list with an entry for each traced call of `convolution`."""
    calls = []
    convolution = winograd.convolution
    monkeypatch.setattr(winograd, "convolution", lambda *a: calls.append(1) or convolution(*a))
    return calls


def test_networks_and_their_gradients_stay_the_same(calls):
    model, x = make_network(), normal(6, 12, 10, 32)
    expected = outputs_and_gradients(model, x)
    assert not calls
    with winograd.faster(model):
        values = outputs_and_gradients(model, x)
    assert len(calls) == 4  # forward and backward, of both layers, that of the inner model too
    assert len(values) == len(expected) == 8
    for value, other in zip(values, expected):
        assert_close(value, other)
    outputs_and_gradients(model, x)
    assert len(calls) == 4  # the ordinary convolutions are back


@pytest.mark.parametrize(
    "options",
    [{"strides": 2}, {"dilation_rate": 2}, {"groups": 2}, {"dtype": "float64"}],
    ids=lambda options: next(iter(options)),
)
def test_other_convolutions_are_not_changed(options, calls):
    layer = keras.layers.Conv2D(32, 3, padding="same", **options)
    model = keras.Sequential([keras.Input((8, 8, 32)), layer])
    with winograd.faster(model):
        model(normal(2, 8, 8, 32))
    assert not calls


def test_few_channels_and_kernels_that_change_are_not_changed(calls):
    few_channels = make_network(channels=4)
    with winograd.faster(few_channels.layers[1]):
        few_channels(normal(2, 12, 10, 4))
    wrapped = keras.layers.SpectralNormalization(keras.layers.Conv2D(32, 3, padding="same"))
    model = keras.Sequential([keras.Input((8, 8, 32)), wrapped])  # changes its kernel in a call
    with winograd.faster(model):
        model(normal(2, 8, 8, 32), training=True)
    assert not calls


def test_an_error_inside_restores_the_layers():
    model = make_network()
    with pytest.raises(KeyError), winograd.faster(model):
        raise KeyError
    assert not any("convolution_op" in vars(layer) for layer in model.layers)


def train(strategy):
    """Train for two epochs; return the weights. The last batch has one row, so that one share of
    the chains, and one replica, get none."""
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 8, 8, 3)).astype(np.float32), np.arange(9) % 3
    with strategy.scope():
        backbone = keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                keras.layers.Conv2D(32, 3, padding="same", activation="silu"),
                keras.layers.Conv2D(32, 3, padding="same", activation="silu"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(3),
            ]
        )
        model = jem_tf.JEM(
            backbone,
            sampler=jem_tf.SGLD(3, 1.0, 0.01),
            buffer=jem_tf.ReplayBuffer(32),
            seed=0,
        )
        model.compile(keras.optimizers.SGD(0.01))
        model.optimizer.build(model.trainable_variables)
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return [w.numpy() for w in model.trainable_weights]


@pytest.mark.slow
def test_training_takes_the_same_steps(calls, monkeypatch):
    weights = train(tf.distribute.get_strategy())
    assert calls
    monkeypatch.setattr(winograd, "MIN_CHANNEL_PAIRS", 10**9)
    calls.clear()
    for weight, expected in zip(weights, train(tf.distribute.get_strategy())):
        np.testing.assert_allclose(weight, expected, rtol=1e-3, atol=1e-4)
    assert not calls


@pytest.mark.slow
def test_replicas_of_one_process_use_ordinary_convolutions(calls, mirrored):
    """They share their layers, and are traced in threads."""
    assert all(np.isfinite(weight).all() for weight in train(mirrored))
    assert not calls


def test_second_derivatives_stay_the_same():
    """Score matching differentiates the gradient by inputs with respect to weights."""
    model, x = make_network(), normal(2, 12, 10, 32)

    def gradients():
        kernels = [w.value for w in model.trainable_weights]

        @tf.function
        def run(x):
            with tf.GradientTape() as outer:
                with tf.GradientTape(watch_accessed_variables=False) as inner:
                    inner.watch(x)
                    f = tf.reduce_logsumexp(model(x), axis=-1)
                loss = tf.reduce_sum(inner.gradient(f, x) ** 2)
            return outer.gradient(loss, kernels, unconnected_gradients="zero")

        return [v.numpy() for v in run(tf.constant(x))]

    expected = gradients()
    with winograd.faster(model):
        values = gradients()
    assert all(np.abs(other).max() > 0 for other in expected[::2])  # of the kernels
    for value, other in zip(values, expected):
        assert_close(value, other)
