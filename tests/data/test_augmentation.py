"""Random crops and flips: against windows of the padded image, and as a Keras layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf.data.augmentation import BORDER, RandomCrop, crop


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).normal(size=(20, 12, 12, 2)).astype(np.float32)


def windows_of(image):
    """All crops of `image` after reflecting its border."""
    border = ((BORDER, BORDER), (BORDER, BORDER), (0, 0))
    padded = np.pad(image, border, mode="reflect")
    sides = range(2 * BORDER + 1)
    return [padded[top : top + 12, left : left + 12] for top in sides for left in sides]


@pytest.mark.parametrize("flip", [False, True])
def test_a_crop_is_a_window_of_the_padded_image(flip, images):
    windows = windows_of(images[0])
    flipped = [window[:, ::-1] for window in windows]
    counts = np.zeros(2, int)
    for seed in range(30):
        result = crop(tf.constant(images[0]), tf.constant([seed, 0]), flip).numpy()
        matches = [any((w == result).all() for w in group) for group in (windows, flipped)]
        assert sum(matches) == 1
        counts += matches
    assert counts[0] > 5 and (counts[1] > 5 if flip else counts[1] == 0)


@pytest.mark.parametrize("flip", [False, True])
def test_the_layer_crops_row_by_row(flip, images):
    """Row i has the seed of the call, with i added to its second number."""
    layer = RandomCrop(flip=flip, seed=3)
    seeds = keras.random.SeedGenerator(3)
    for _ in range(2):  # each call takes new numbers
        first = tf.cast(seeds.next(), tf.int64)
        rows = [crop(image, [first[0], first[1] + i], flip) for i, image in enumerate(images)]
        np.testing.assert_array_equal(layer(images, training=True), rows)
    assert not np.array_equal(rows, images)


def test_the_layer_is_inactive_outside_of_training(images):
    np.testing.assert_array_equal(RandomCrop(flip=True)(images), images)
    np.testing.assert_array_equal(RandomCrop(flip=True)(images, training=False), images)


def test_the_layer_works_in_a_graph_for_any_number_of_rows(images):
    layer, other = RandomCrop(flip=True, seed=3), RandomCrop(flip=True, seed=3)
    spec = tf.TensorSpec([None, 12, 12, 2], tf.float32)
    call = tf.function(lambda x: layer(x, training=True), input_signature=[spec])
    for rows in (5, 1):
        np.testing.assert_array_equal(call(images[:rows]), other(images[:rows], training=True))


def test_the_layer_survives_serialisation(images):
    layer = RandomCrop(flip=True, seed=3, name="crops")
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert copy.get_config() == layer.get_config() and copy.name == "crops"
    np.testing.assert_array_equal(copy(images, training=True), layer(images, training=True))
