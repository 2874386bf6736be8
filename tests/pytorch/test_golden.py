"""A checkpoint that PyTorch wrote, and the outputs of PyTorch for it; PyTorch is not needed."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import jem_tf.pytorch
from jem_tf import energy

FOLDER = Path(__file__).parent  # `reference.py` writes both files


@pytest.fixture(scope="module")
def model():
    return jem_tf.pytorch.load(FOLDER / "golden.pt", "wrn-10-1", classes=10)


@pytest.fixture(scope="module")
def expected():
    return np.load(FOLDER / "golden.npz")


def test_logits_of_the_buffer_equal_those_of_pytorch(model, expected):
    x = model.stored_chains()
    assert x.shape == (2, 32, 32, 3)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected["logits"], atol=1e-5)


def test_gradients_of_the_buffer_equal_those_of_pytorch(model, expected):
    score = energy.input_score(model.backbone, tf.constant(model.stored_chains())).numpy()
    torch_score = np.moveaxis(expected["score"], 1, -1)
    assert np.abs(score - torch_score).max() < 1e-4 * np.abs(torch_score).max()
