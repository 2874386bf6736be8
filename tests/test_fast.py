"""What makes JEM cheap or flat: reused gradients, sharpness-aware updates, two streams of data."""

import dataclasses
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax

import jem_tf
from jem_tf import SGLD, backbones, data
from jem_tf.sampling.reuse import Cut, cut
from jem_tf.training import recipes

SEED = tf.constant([3, 5])
A = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
W = np.random.default_rng(2).normal(size=5).astype(np.float32)
X = np.random.default_rng(3).normal(size=(7, 3)).astype(np.float32)


def first(x):
    return tf.tanh(tf.matmul(x, A))


def linear(hidden):
    return tf.linalg.matvec(hidden, W)


def curved(hidden):
    return -tf.reduce_sum((hidden - W) ** 2, axis=-1)


def whole(rest):
    return lambda x: rest(first(x))


def test_reuse_is_exact_where_the_rest_of_the_network_is_linear():
    """p does not depend on x then, so nothing is approximated; noise is the same."""
    plain, _ = SGLD(12, 0.05, 0.1).run(whole(linear), tf.constant(X), SEED)
    for reuse in (1, 3, 4, 12):
        reused, _ = SGLD(12, 0.05, 0.1, reuse=reuse).run(Cut(first, linear), tf.constant(X), SEED)
        np.testing.assert_allclose(reused, plain, rtol=1e-5, atol=1e-6)


def test_reuse_follows_its_equation():
    """x1 = x0 + a J(x0)^T p(x0), x2 = x1 + a J(x1)^T p(x0), then anew; in NumPy."""
    x = X.astype(np.float64)
    for _ in range(3):
        hidden = np.tanh(x @ A)
        slope = -2.0 * (hidden - W)
        for _ in range(2):
            x = x + 0.05 * (slope * (1.0 - np.tanh(x @ A) ** 2)) @ A.T
    reused, _ = SGLD(6, 0.05, 0.0, reuse=2).run(Cut(first, curved), tf.constant(X), SEED)
    np.testing.assert_allclose(reused, x, rtol=1e-4, atol=1e-5)
    plain, _ = SGLD(6, 0.05, 0.0).run(whole(curved), tf.constant(X), SEED)
    assert np.abs(reused - plain).max() > 1e-3


@pytest.mark.parametrize(
    "backbone",
    [
        lambda: backbones.convnet((8, 8, 1), 4, 8),
        lambda: backbones.wide_resnet((8, 8, 1), 4, 10, 1),
        lambda: backbones.mlp((8, 8, 1), 4),
    ],
    ids=["convnet", "wide_resnet", "mlp"],
)
def test_backbones_are_cut_into_parts_that_make_the_whole(backbone):
    network = backbone()
    network(keras.Input((8, 8, 1)))  # a second use of its layers, elsewhere
    before, after = cut(network)
    x = np.random.default_rng(0).normal(size=(3, 8, 8, 1)).astype(np.float32)
    np.testing.assert_allclose(after(before(x)), network(x), atol=1e-6)
    assert len(before.trainable_weights) == 2
    assert {id(w) for w in before.weights + after.weights} == {id(w) for w in network.weights}


class Custom(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(2)

    def call(self, x):
        return self.dense(x)


def around():
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(3)(inputs)
    return keras.Model(inputs, keras.layers.Dense(2)(hidden + inputs))


def inside():
    return keras.Sequential([keras.Input((3,)), backbones.mlp((3,), 4), keras.layers.Dense(2)])


@pytest.mark.parametrize("backbone", [Custom, around, inside])
def test_networks_that_cannot_be_cut_take_whole_passes_and_say_so(backbone):
    y = np.arange(7) % 2
    results = []
    for reuse in (2, 1):
        keras.utils.set_random_seed(0)
        model = jem_tf.JEM(backbone(), sampler=SGLD(4, reuse=reuse), seed=0)
        model.compile("sgd")
        if reuse > 1:
            with pytest.warns(UserWarning, match="reuse=2.*cannot be cut"):
                model.build((None, 3))
        model.fit(X, y, verbose=0)
        results.append(model.buffer.arrays()["chains"])
    np.testing.assert_array_equal(*results)


def test_training_reuses_and_samples_do_not(blobs, make_model):
    model = make_model(sampler=SGLD(8, reuse=4))
    history = model.fit(*blobs, batch_size=50, epochs=25, verbose=0).history
    assert history["accuracy"][-1] > 0.9
    whole_passes = make_model(sampler=SGLD(8))
    whole_passes.adapt(*blobs)
    whole_passes.backbone.set_weights(model.backbone.get_weights())
    whole_passes.progress.assign(step_size=model.progress["step_size"].numpy())
    np.testing.assert_array_equal(
        model.sample(5, steps=8, seed=1), whole_passes.sample(5, steps=8, seed=1)
    )


def test_sharpness_is_the_gradient_at_the_steepest_place_near(blobs):
    """Softmax regression and one step of SGD, both by closed forms in NumPy."""
    x, y = blobs
    model = jem_tf.JEM(
        keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]),
        objective="cross_entropy",
        input_noise=0.0,
        sharpness=0.3,
        seed=0,
    )
    kernel, bias = (w.astype(np.float64) for w in model.backbone.get_weights())

    def gradient(kernel, bias):
        wrong = (softmax(x @ kernel + bias, axis=-1) - np.eye(3)[y]) / len(x)
        return x.T @ wrong, wrong.sum(0)

    parts = gradient(kernel, bias)
    length = np.sqrt(sum((part**2).sum() for part in parts))
    steep = gradient(*(w + 0.3 * g / length for w, g in zip((kernel, bias), parts)))
    model.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    logs = model.train_on_batch(x, y, return_dict=True)
    for now, before, slope in zip(model.backbone.get_weights(), (kernel, bias), steep):
        np.testing.assert_allclose(now, before - 0.1 * slope, rtol=1e-4, atol=1e-6)
    assert not np.allclose(steep[0], parts[0], rtol=0.02)  # it would show if nothing moved
    first_logits = x @ kernel + bias
    assert logs["accuracy"] == pytest.approx((first_logits.argmax(1) == y).mean(), abs=1e-6)


@pytest.mark.parametrize("objective", ["joint", pytest.param("nce", marks=pytest.mark.slow)])
def test_sharp_updates_on_two_replicas(objective, mirrored, make_model, blobs):
    with mirrored.scope():
        model = make_model(sharpness=0.05, objective=objective)
    history = model.fit(*blobs, batch_size=50, epochs=25, verbose=0).history
    assert history["accuracy"][-1] > 0.9


def test_augmentation_is_for_what_is_classified_alone(blobs, make_model):
    """Inputs times zero: the classifier sees nothing, the density all."""
    x, y = blobs
    logs = []
    for layer in (keras.layers.Rescaling(0.0), None):
        keras.utils.set_random_seed(0)
        model = make_model(augmentation=layer)
        model.fit(x, y, batch_size=300, shuffle=False, verbose=0)
        logs.append(model.history.history)
    blind, plain = logs
    assert blind["classification_loss"][0] == pytest.approx(np.log(3), abs=1e-4)  # no bias yet
    assert plain["classification_loss"][0] != pytest.approx(np.log(3), abs=1e-2)
    assert blind["energy_data"][0] == pytest.approx(plain["energy_data"][0], rel=1e-5)


def test_augmentation_and_sharpness_are_saved(tmp_path, make_model, blobs):
    model = make_model(
        augmentation=keras.layers.GaussianNoise(0.1), sharpness=0.05, sampler=SGLD(4, reuse=2)
    )
    model.fit(*blobs, verbose=0)
    model.save(tmp_path / "model.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none that it cannot be cut
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.augmentation, keras.layers.GaussianNoise)
    assert (loaded.sharpness, loaded.sampler.reuse, loaded.one_pass) == (0.05, 2, False)
    np.testing.assert_array_equal(loaded.predict(blobs[0], verbose=0), model.predict(blobs[0]))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"sharpness": -1.0}, "sharpness.*Received: sharpness=-1.0"),
        ({"augmentation": "flip"}, "augmentation.*Received: augmentation='flip'"),
    ],
)
def test_wrong_settings_are_named(options, message, make_model):
    with pytest.raises((ValueError, TypeError), match=message):
        make_model(**options)


@pytest.mark.parametrize("reuse", [0, 3, 2.0])
def test_reuse_must_divide_the_steps(reuse):
    with pytest.raises(ValueError, match=f"divides steps=10. Received: reuse={reuse}"):
        SGLD(10, reuse=reuse)


def test_the_fast_recipe_keeps_the_life_of_chains():
    slow, quick = recipes.get("image"), recipes.get("image_fast")
    assert quick.steps == 4
    assert quick.steps / quick.reinit_probability == slow.steps / slow.reinit_probability == 400


def test_a_recipe_reuses():
    recipe = dataclasses.replace(recipes.get("digits"), reuse=5)
    model = recipe.model(data.load("digits"), seed=0)
    assert (model.sampler.steps, model.sampler.reuse) == (10, 5)
    assert cut(model.backbone) is not None


def test_a_recipe_can_augment_for_the_classifier_alone():
    digits = data.load("digits")
    recipe = dataclasses.replace(recipes.get("digits"), augment="classifier", start="mixture")
    model = recipe.model(digits, seed=0)
    x = digits.arrays("test", 50)[0]
    moved = model.augmentation(x, training=True).numpy()
    assert moved.shape == x.shape and not np.allclose(moved, x)
    assert x.min() <= moved.min() and moved.max() <= x.max()
    assert isinstance(model.start, jem_tf.GaussianMixture) and not model.one_pass


@pytest.mark.parametrize("field", ["start", "augment"])
def test_a_recipe_names_a_wrong_word(field):
    wrong = dataclasses.replace(recipes.get("digits"), **{field: "mixtrue"})
    with pytest.raises(ValueError, match="mixtrue"):
        wrong.model(data.load("digits"))
