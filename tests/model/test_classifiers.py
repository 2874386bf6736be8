"""Trained classifiers as backbones: same predictions, logits instead of a softmax."""

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf.model.classifiers import expected_pixels, without_softmax

L = keras.layers
X = np.random.default_rng(0).uniform(0, 255, (5, 4)).astype(np.float32)


def sequential(*layers):
    return keras.Sequential([keras.Input((4,)), *layers])


def functional(end):
    inputs = keras.Input((4,))
    hidden = L.Dense(8, activation="relu")(L.Rescaling(1 / 255)(inputs))
    return keras.Model(inputs, end(L.Dropout(0.5)(L.BatchNormalization()(hidden))))


CLASSIFIERS = {
    "activation of a dense layer": lambda: sequential(L.Dense(8), L.Dense(3, activation="softmax")),
    "Softmax layer": lambda: functional(lambda x: L.Softmax()(L.Dense(3)(x))),
    "Activation layer": lambda: functional(lambda x: L.Activation("softmax")(L.Dense(3)(x))),
    "operation": lambda: functional(lambda x: keras.ops.softmax(L.Dense(3)(x))),
    "softmax around a model": lambda: sequential(sequential(L.Dense(8), L.Dense(3)), L.Softmax()),
    "model in a model": lambda: sequential(L.ReLU(), sequential(L.Dense(3, activation="softmax"))),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_the_softmax_is_taken_off_and_the_probabilities_stay(kind):
    classifier = CLASSIFIERS[kind]()
    logits = without_softmax(classifier)(X).numpy()
    expected = classifier(X).numpy()
    np.testing.assert_allclose(keras.ops.softmax(logits), expected, rtol=1e-5, atol=1e-7)
    assert not np.allclose(logits.sum(1), 1.0)
    again = without_softmax(classifier)
    assert without_softmax(again) is again


def test_the_layers_of_a_model_in_a_model_can_be_read():
    classifier = CLASSIFIERS["softmax around a model"]()
    assert jem_tf.JEM.from_classifier(classifier).detector.layer_names


def test_log_softmax_is_taken_off_too():
    classifier = sequential(L.Dense(3, activation="log_softmax"))
    logits = without_softmax(classifier)(X)
    np.testing.assert_allclose(keras.ops.log_softmax(logits), classifier(X), rtol=1e-5, atol=1e-5)


def test_a_jem_begins_with_the_classifier_and_trains(blobs):
    x, y = blobs
    layers = [L.Dense(16, activation="relu"), L.BatchNormalization(), L.Dropout(0.1)]
    classifier = keras.Sequential(
        [keras.Input((2,)), L.Rescaling(0.1), *layers, L.Dense(3, activation="softmax")]
    )
    model = jem_tf.JEM.from_classifier(classifier, sampler=jem_tf.SGLD(2), seed=0)
    before = classifier.predict(x, verbose=0)
    np.testing.assert_allclose(keras.ops.softmax(model.predict(x, verbose=0)), before, atol=1e-5)
    model.compile("adam", metrics=["accuracy"])
    logs = model.fit(x, y, epochs=1, verbose=0).history
    assert np.isfinite(logs["loss"]).all()


@pytest.mark.parametrize(
    ("layer", "pixels"),
    [
        (L.Rescaling(1 / 255), (0, 255)),
        (L.Rescaling(1 / 127.5, offset=-1), (0, 255)),
        (L.Rescaling(2.0), None),
        (L.ReLU(), None),
    ],
)
def test_rescaling_says_what_pixels_are_expected(layer, pixels):
    assert expected_pixels(sequential(layer, L.Dense(2))) == pixels
    assert expected_pixels(keras.Sequential([sequential(layer), L.Dense(2)])) == pixels


IMAGES = keras.Input((4, 4, 1))


def network(*layers):
    return keras.Sequential([IMAGES, *layers, L.Flatten(), L.Dense(8), L.Dense(2)])


@pytest.mark.parametrize(
    "model",
    [
        lambda rescaling: keras.Sequential([network(rescaling, L.Conv2D(2, 1)), L.Softmax()]),
        lambda rescaling: keras.Sequential(
            [IMAGES, keras.Sequential([L.RandomFlip(), L.RandomRotation(0.1)]), network(rescaling)]
        ),
        lambda rescaling: jem_tf.JEM(network(rescaling)),
        lambda rescaling: network(L.Pipeline([L.RandomFlip()]), L.Resizing(2, 2), rescaling),
        lambda rescaling: keras.Model(IMAGES, L.Dense(2)(network(L.Identity(), rescaling)(IMAGES))),
    ],
)
def test_rescaling_is_found_in_models_in_models_and_after_augmentation(model):
    assert expected_pixels(model(L.Rescaling(1 / 255))) == (0, 255)
    assert expected_pixels(model(L.Rescaling(1.0))) is None


def test_rescaling_counts_only_if_it_comes_first():
    halved = keras.Model(IMAGES, network(L.Rescaling(1 / 255))(IMAGES / 2.0))
    assert expected_pixels(halved) is None
    assert expected_pixels(network(L.Conv2D(2, 1), L.Rescaling(1 / 255))) is None
