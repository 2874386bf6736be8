"""Muon for convolutions: orthogonal updates, against the singular value decomposition."""

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.muon import Muon


def updated(optimizer, *kernels, gradients):
    variables = [keras.Variable(kernel, dtype="float32") for kernel in kernels]
    optimizer.apply([tf.constant(g, tf.float32) for g in gradients], variables)
    return [np.asarray(v) for v in variables]


def test_the_first_update_of_a_kernel_is_nearly_orthogonal():
    """U V' of the gradient's decomposition, with Keras' scale; Newton-Schulz brings singular values
    to between 0.7 and 1.2 (Jordan et al.)."""
    gradient = np.random.default_rng(0).normal(size=(3, 3, 4, 8))
    (kernel,) = updated(
        Muon(0.1, weight_decay=None), np.zeros(gradient.shape), gradients=[gradient]
    )
    matrix = -kernel.reshape(36, 8) / (0.1 * 0.2 * np.sqrt(36))
    u, _, v = np.linalg.svd(gradient.reshape(36, 8), full_matrices=False)
    inside = u.T @ matrix @ v.T
    np.testing.assert_allclose(np.diag(inside), 0.95, atol=0.27)
    np.testing.assert_allclose(inside - np.diag(np.diag(inside)), 0, atol=1e-3)


def test_other_weights_are_updated_by_adamw():
    rng = np.random.default_rng(0)
    shapes = [(8, 5), (5,)]
    starts, gradients = ([rng.normal(size=shape) for shape in shapes] for _ in range(2))
    mine = updated(Muon(0.1, weight_decay=0.5, adam_weight_decay=0.5), *starts, gradients=gradients)
    expected = updated(keras.optimizers.AdamW(0.1, weight_decay=0.5), *starts, gradients=gradients)
    for value, other in zip(mine, expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6)


def test_it_is_saved_and_loaded():
    config = keras.saving.serialize_keras_object(Muon(0.3, momentum=0.8))
    loaded = keras.saving.deserialize_keras_object(config)
    assert isinstance(loaded, Muon) and loaded.momentum == 0.8
