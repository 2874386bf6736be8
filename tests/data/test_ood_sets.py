"""Out-of-distribution sets: they have the shape and range of the data, and are what their names
say."""

import dataclasses

import numpy as np
import pytest

from jem_tf import data
from jem_tf.data import ood_sets


@pytest.mark.parametrize("name", ood_sets.SYNTHETIC)
def test_sets_have_the_shape_and_range_of_the_data(name, digits):
    x = ood_sets.load(name, digits, 50, seed=1)
    assert x.shape == (50, 8, 8, 1) and x.dtype == np.float32
    assert x.min() >= -1 and x.max() <= 1
    np.testing.assert_array_equal(x, ood_sets.load(name, digits, 50, seed=1))
    assert (x != ood_sets.load(name, digits, 50, seed=2)).any()


def test_sets_are_what_their_names_say(digits):
    def flat(name):
        return ood_sets.load(name, digits, 400).reshape(400, -1)

    def correlation_of_neighbours(x):
        return np.corrcoef(x[:, :-1].ravel(), x[:, 1:].ravel())[0, 1]

    assert np.ptp(flat("constant"), axis=1).max() == 0
    assert abs(flat("noise").std() - 2 / np.sqrt(12)) < 0.02
    assert abs(correlation_of_neighbours(flat("noise"))) < 0.1
    assert correlation_of_neighbours(flat("patches")) > 0.7
    x, _ = digits.arrays("test")
    rows = x.reshape(len(x), -1)
    middle = flat("interpolations")[0]
    assert any(np.isclose(row + rows, 2 * middle).all(1).any() for row in rows)


def test_patches_may_be_larger_than_the_photographs(digits):
    large = dataclasses.replace(digits, shape=(200, 200, 3))
    assert ood_sets.load("patches", large, 2).shape == (2, 200, 200, 3)


def test_patches_are_scaled_to_the_values_of_black_and_white(digits):
    """A model must not detect photographs by the range of their values."""
    unit = lambda x, y: ((x + 1.0) / 2.0, y)  # noqa: E731
    other = dataclasses.replace(
        digits, train=digits.train.map(unit), test=digits.test.map(unit), pixel_range=(0.0, 1.0)
    )
    expected = (ood_sets.load("patches", digits, 20) + 1) / 2
    np.testing.assert_allclose(ood_sets.load("patches", other, 20), expected, atol=1e-6)


def test_another_data_set_is_resized(mnist_directory, digits):
    with pytest.raises(ValueError, match=r"\(28, 28, 1\), digits \(8, 8, 1\): resize"):
        ood_sets.load("mnist", digits, 5, data_dir=mnist_directory)
    x = ood_sets.load("mnist", digits, 5, data_dir=mnist_directory, resize=True)
    assert x.shape == (5, 8, 8, 1)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A data set of vectors, whose features have other scales."""
    path = tmp_path_factory.mktemp("table") / "table.npz"
    x = np.random.default_rng(0).normal(size=(60, 3)) * [1, 10, 100]
    np.savez(path, x=x, y=np.arange(60) % 2)
    return data.load(str(path))


def test_vectors_have_the_sets_that_make_sense(table):
    assert ood_sets.companions(table) == ("noise", "interpolations")
    noise = ood_sets.load("noise", table, 40)
    assert noise[:, 2].std() > 10 * noise[:, 0].std()
    assert ood_sets.load("interpolations", table, 40).shape == (40, 3)
    with pytest.raises(ValueError, match="no `constant` set for vectors"):
        ood_sets.load("constant", table, 5)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        ood_sets.load("patches", table, 5)


def test_unknown_names_suggest_similar_ones(digits):
    with pytest.raises(ValueError, match="'patches'"):
        ood_sets.load("patchs", digits, 5)
