"""Convolutions by tiles: the numbers of SciPy and of Keras."""

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


def close(found, expected):
    """F(4x4, 3x3) in single precision: sums of some hundred terms, tile entries up to 100 times
    as large as pixels, so five digits of the largest value are left."""
    assert np.abs(found - expected).max() < 3e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    "shape", [(2, 8, 8), (3, 32, 32), (1, 32, 32), (1, 7, 9), (5, 4, 21), (2, 1, 3)]
)
def test_convolution_is_scipys(shape):
    x, kernel = normal(*shape, 5), normal(3, 3, 5, 4)
    found = winograd.convolution(tf.constant(x), winograd.transform(tf.constant(kernel)))
    expected = [  # the sum over channels: the middle of a correlation in three dimensions
        [correlate(image, kernel[..., f], mode="same")[..., 2] for f in range(4)] for image in x
    ]
    close(found.numpy(), np.moveaxis(np.array(expected), 1, -1))


def network(channels=32, **options):
    inputs = keras.Input((12, 10, channels))
    x = keras.layers.Conv2D(32, 3, padding="same", activation="silu", **options)(inputs)
    inner = keras.Sequential([keras.layers.Conv2D(48, 3, padding="same", **options)])
    x = keras.layers.Flatten()(inner(x))
    return keras.Model(inputs, keras.layers.Dense(3)(x))


def slopes(model, x):
    """Outputs, and gradients of the sum of their squares by inputs and weights, in a graph."""

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x)
            loss = tf.reduce_sum(y**2)
        return [y, *tape.gradient(loss, [x, *[w.value for w in model.trainable_weights]])]

    return [v.numpy() for v in run(tf.constant(x))]


def counted(monkeypatch):
    """How often `convolution` is traced."""
    calls = []
    usual = winograd.convolution
    monkeypatch.setattr(winograd, "convolution", lambda *a: calls.append(1) or usual(*a))
    return calls


def test_networks_and_their_gradients_stay_the_same(monkeypatch):
    model, x = network(), normal(6, 12, 10, 32)
    expected = slopes(model, x)
    calls = counted(monkeypatch)
    with winograd.faster(model):
        found = slopes(model, x)
    assert len(calls) == 4  # forth and back, of both layers, the inner model's too
    assert len(found) == len(expected) == 8
    for a, b in zip(found, expected):
        close(a, b)
    slopes(model, x)
    assert len(calls) == 4  # and outside all is as it was


@pytest.mark.parametrize(
    "options",
    [{"strides": 2}, {"dilation_rate": 2}, {"groups": 2}, {"dtype": "float64"}],
    ids=lambda o: next(iter(o)),
)
def test_other_convolutions_are_left_alone(options, monkeypatch):
    calls = counted(monkeypatch)
    layer = keras.layers.Conv2D(32, 3, padding="same", **options)
    model = keras.Sequential([keras.Input((8, 8, 32)), layer])
    with winograd.faster(model):
        model(normal(2, 8, 8, 32))
    few = network(channels=4)
    with winograd.faster(few.layers[1]):
        few(normal(2, 12, 10, 4))
    wrapped = keras.layers.SpectralNormalization(keras.layers.Conv2D(32, 3, padding="same"))
    changing = keras.Sequential([keras.Input((8, 8, 32)), wrapped])  # its kernel, as it is called
    with winograd.faster(changing):
        changing(normal(2, 8, 8, 32), training=True)
    assert not calls


def test_an_error_inside_leaves_no_trace():
    model = network()
    with pytest.raises(KeyError), winograd.faster(model):
        raise KeyError
    assert not any("convolution_op" in vars(layer) for layer in model.layers)


@pytest.mark.parametrize("sharpness", [0.0, 0.05])
@pytest.mark.parametrize("replicas", [1, 2])
def test_training_takes_the_same_steps(replicas, sharpness, monkeypatch, request):
    """With and without. The last batch is one row: one share, and one replica, get none."""
    strategy = (
        request.getfixturevalue("mirrored") if replicas == 2 else tf.distribute.get_strategy()
    )
    x, y = normal(25, 8, 8, 3), np.arange(25) % 3

    def trained():
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = jem_tf.JEM(
                keras.Sequential(
                    [
                        keras.Input((8, 8, 3)),
                        keras.layers.Conv2D(32, 3, padding="same", activation="silu"),
                        keras.layers.Conv2D(32, 3, padding="same", activation="silu"),
                        keras.layers.GlobalAveragePooling2D(),
                        keras.layers.Dense(3),
                    ]
                ),
                sampler=jem_tf.SGLD(3, 1.0, 0.01),
                buffer=jem_tf.ReplayBuffer(32),
                sharpness=sharpness,
                seed=0,
            )
            model.compile(keras.optimizers.SGD(0.01))
        model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
        return [w.numpy() for w in model.trainable_weights]

    calls = counted(monkeypatch)
    fast = trained()
    assert bool(calls) == (replicas == 1)  # several replicas of one process share their layers
    monkeypatch.setattr(winograd, "FEWEST", 10**9)
    calls.clear()
    for found, expected in zip(fast, trained()):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    assert not calls
