"""What tests of several packages share, beside the fixtures of `conftest.py`."""

import keras
import numpy as np


def compile_for_tests(model, optimizer=None, one_hot=False):
    """Compile `model` so that all variables exist before the first step.

    TensorFlow traces a step that creates variables twice, which takes longer than most tests.
    """
    kind = keras.metrics.CategoricalAccuracy if one_hot else keras.metrics.SparseCategoricalAccuracy
    optimizer = optimizer or keras.optimizers.Adam(1e-2)
    model.compile(optimizer, metrics=[kind("accuracy")])
    model.optimizer.build(model.trainable_variables)


def assert_same_weights(model, other):
    """Assert that the weights of two models are equal, bit for bit."""
    for weight, expected in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)
