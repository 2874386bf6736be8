"""Whitened encoders: uncorrelated components of one scale, as scikit-learn has them."""

import keras
import numpy as np
import pytest
from sklearn.decomposition import PCA

from jem_tf.backbones import whitened


def test_vectors_are_whitened_as_by_pca():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(300, 6)) @ rng.normal(size=(6, 6)) + 3).astype(np.float32)
    encoder = keras.Sequential([keras.Input((6,)), keras.layers.Rescaling(2.0)])
    vectors = whitened(encoder, x, units=4)(x).numpy()
    assert vectors.shape == (300, 4)
    covariance = np.cov(vectors.T)
    variance = covariance[0, 0]
    np.testing.assert_allclose(covariance, variance * np.eye(4), atol=1e-3 * variance)
    expected = PCA(4, whiten=True, random_state=0).fit_transform(2 * x) * np.sqrt(variance)
    np.testing.assert_allclose(vectors, expected, rtol=0.02, atol=1e-3)
    np.testing.assert_allclose(np.quantile(np.abs(vectors), 0.999), 1.0, rtol=1e-3)


def test_components_without_variance_are_left_out():
    """Vectors after layer normalisation have one dimension less."""
    x = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)
    layers = [keras.Input((5,)), keras.layers.LayerNormalization()]
    vectors = whitened(keras.Sequential(layers), x, units=5)(x).numpy()
    assert vectors.shape == (100, 4) and np.isfinite(vectors).all()
    with pytest.raises(ValueError, match="the same vector"):
        whitened(keras.Sequential(layers), np.ones_like(x), units=5)
