"""`Dataset`: batches, epochs and arrays of its splits."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import tensorflow as tf

from jem_tf import data


def labels_of(batches):
    return np.concatenate([y for _, y in batches.as_numpy_iterator()])


def test_batches_repeat_with_their_seed_and_differ_between_epochs(digits):
    batches, same = digits.batches("train", 64, seed=1), digits.batches("train", 64, seed=1)
    first = labels_of(batches)
    np.testing.assert_array_equal(first, labels_of(same))
    assert (first != labels_of(batches)).any()
    plain = labels_of(digits.batches("train", 64))
    np.testing.assert_array_equal(plain, digits.arrays("train")[1])


@pytest.fixture(scope="module")
def small_digits(digits):
    """The first 30 training rows of the digits."""
    return dataclasses.replace(digits, train=digits.train.take(30))


@pytest.mark.parametrize("augment", [False, True])
def test_the_content_of_an_epoch_depends_on_its_number_only(augment, small_digits):
    """Three epochs of three batches, and the third of them read alone."""
    epochs = small_digits.epochs(10, 3, augment=augment)
    batches = list(epochs.take(9).as_numpy_iterator())
    third = small_digits.epochs(10, 3, first=2, augment=augment).take(3).as_numpy_iterator()
    for (x, y), (expected_x, expected_y) in zip(third, batches[6:], strict=True):
        np.testing.assert_array_equal(x, expected_x)
        np.testing.assert_array_equal(y, expected_y)
    orders = [np.concatenate([y for _, y in batches[i : i + 3]]) for i in (0, 3, 6)]
    assert all(len(order) == 30 for order in orders)
    assert not np.array_equal(orders[0], orders[1])
    np.testing.assert_array_equal(*(np.bincount(order) for order in orders[:2]))


@pytest.mark.parametrize("method", ["batches", "epochs"])
def test_rows_are_cropped_and_flipped_as_requested(method, digits):
    """Two bright columns in a dark image: a flip swaps them, a crop moves them."""
    x = np.zeros((16, 16, 16, 1), np.float32)
    x[:, :, 7], x[:, :, 8] = 1.0, 0.5
    rows = tf.data.Dataset.from_tensor_slices((x, np.zeros(16, np.int64)))
    images = dataclasses.replace(digits, train=rows, shape=(16, 16, 1))
    for augment, flips in (("crop", False), (True, True)):
        read = images.epochs if method == "epochs" else partial(images.batches, "train")
        batch, _ = next(iter(read(16, seed=1, augment=augment)))
        bright, half = (tf.argmax(tf.abs(batch[:, 8, :, 0] - v) < 1e-6, 1) for v in (1.0, 0.5))
        assert len(np.unique(bright)) > 3
        assert bool(tf.reduce_any(bright > half)) == flips


def test_a_limit_takes_rows_from_all_of_a_split(tmp_path):
    """Many splits are sorted by class."""
    y = np.repeat([0, 1, 2, 3], 25)
    x = np.zeros((100, 2, 2, 1), np.uint8)
    np.savez(tmp_path / "sorted.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    _, labels = data.load(str(tmp_path / "sorted.npz")).arrays("test", 20)
    assert np.bincount(labels).tolist() == [5, 5, 5, 5]


def test_an_unknown_split_raises(digits):
    with pytest.raises(ValueError, match="split='dev'"):
        digits.arrays("dev")
