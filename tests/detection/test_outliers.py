"""Outliers made from the data: their range, and what they keep and destroy."""

import numpy as np
import pytest

from jem_tf.detection.outliers import made_up_outliers

RNG = np.random.default_rng(0)
VECTORS = RNG.multivariate_normal([0, 5], [[1, 0.9], [0.9, 1]], 400).astype("f4")
IMAGES = RNG.uniform(-1, 1, (40, 9, 12, 3)).astype("f4").cumsum(axis=1) / 9


@pytest.mark.parametrize("x", [VECTORS, IMAGES], ids=["vectors", "images"])
def test_outliers_have_the_shape_and_repeat(x):
    made = made_up_outliers(x, np.arange(len(x)) % 2)
    again = made_up_outliers(x, np.arange(len(x)) % 2)
    for name, rows in made.items():
        assert rows.shape == x.shape and rows.dtype == np.float32
        np.testing.assert_array_equal(rows, again[name])
        if name != "far":
            axes = tuple(range(x.ndim - 1))
            assert (rows.min(axes) >= x.min(axes) - 1e-5).all()
            assert (rows.max(axes) <= x.max(axes) + 1e-5).all()


def test_shuffled_rows_keep_each_feature_and_lose_the_correlation():
    shuffled = made_up_outliers(VECTORS, None)["shuffled"]
    np.testing.assert_array_equal(np.sort(shuffled, axis=0), np.sort(VECTORS, axis=0))
    assert abs(np.corrcoef(shuffled.T)[0, 1]) < 0.15 < 0.85 < np.corrcoef(VECTORS.T)[0, 1]


def test_blends_are_means_of_rows_of_two_classes():
    y = np.arange(40) % 4
    x = np.broadcast_to(4.0 ** y[:, None], (40, 2)).astype("f4")
    blends = made_up_outliers(x, y)["blends"]
    means = [(4.0**a + 4.0**b) / 2 for a in range(4) for b in range(4) if a != b]
    assert np.isin(blends, np.float32(means)).all()


def test_tiles_are_the_pixels_in_another_order():
    x = RNG.normal(size=(20, 8, 8, 1)).astype("f4")
    tiles = made_up_outliers(x, None)["tiles"]
    np.testing.assert_array_equal(np.sort(tiles.reshape(20, -1)), np.sort(x.reshape(20, -1)))
    assert (tiles != x).mean() > 0.8


def test_phases_keep_the_amplitudes_where_nothing_is_clipped():
    x = RNG.normal(0, 0.1, (20, 8, 8, 1)).astype("f4")
    x[0, 0, 0], x[0, 0, 1] = -5, 5  # the range of the data
    made = made_up_outliers(x, None)["phases"][1:]
    spectra = [np.abs(np.fft.fft2(v, axes=(1, 2))) for v in (x[1:], made)]
    np.testing.assert_allclose(*spectra, atol=1e-4)
