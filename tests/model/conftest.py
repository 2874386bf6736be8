"""A trained model that tests of this package read."""

import keras
import pytest

import jem_tf


@pytest.fixture(scope="session")
def trained_model(make_model, blobs):
    """A model after three epochs on `blobs`, with 200 chains; tests must not change it."""
    keras.utils.set_random_seed(7)
    model = make_model(buffer=jem_tf.ReplayBuffer(200))
    model.fit(*blobs, batch_size=50, epochs=3, verbose=0)
    return model
