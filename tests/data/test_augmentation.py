"""Random crops and flips: against windows of the padded image, and as a Keras layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf.data import Dataset
from jem_tf.data.augmentation import BORDER, RandomCrop, crop, cutout


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


def test_cutout_covers_a_square_with_the_mean_color(images):
    """At most a quarter of the side long, around any pixel."""
    sides, counts = [], np.zeros((12, 12))
    for seed in range(400):
        result = cutout(tf.constant(images[0]), tf.constant([seed, 0])).numpy()
        covered = (result != images[0]).any(-1)
        rows, columns = covered.any(1), covered.any(0)
        assert (covered == np.outer(rows, columns)).all()
        mean = np.broadcast_to(images[0].mean((0, 1)), result[covered].shape)
        np.testing.assert_allclose(result[covered], mean, rtol=1e-5, atol=1e-6)
        sides += [rows.sum(), columns.sum()]
        counts += covered
    assert max(sides) == 3
    # Inside, a pixel is covered by 9 of 144 centres. The mean over pixels of 400 draws has a
    # standard error of .0625 / sqrt(400) at most.
    np.testing.assert_allclose(counts[2:-2, 2:-2].mean() / 400, 9 / 144, atol=0.01)


def test_the_square_does_not_depend_on_the_flip():
    """Of 600 rows, half are flipped, and of each half as many are covered above as below."""
    x = np.zeros((16, 16, 1), np.float32) + np.linspace(-1, 1, 16, dtype="f4")[None, :, None]
    rows = tf.data.Dataset.from_tensors((x, 0)).repeat(600)
    rows = rows.apply(tf.data.experimental.assert_cardinality(600))
    images = Dataset("ramp", rows, rows, rows, (16, 16, 1), ("one",))
    made = np.concatenate([b.numpy() for b, _ in images.batches("train", 100, 0, "cutout")])
    flipped = made[:, 0, 0, 0] > made[:, 0, -1, 0]
    covered = np.abs(np.diff(made[..., 0], axis=2)).min(2) < 1e-6  # rows in which values repeat
    above = covered[:, :8].sum(1) > covered[:, 8:].sum(1)
    for half in (flipped, ~flipped):
        assert 0.4 < half.mean() < 0.6
        assert 0.3 < above[half].mean() < 0.7  # .5, five standard errors of 300 rows are .14


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
