"""Chains on their way from noise to samples."""

import numpy as np
import tensorflow as tf

from jem_tf.evaluation.parts.generation import chain_frames


def test_chain_frames_begin_at_noise_and_move(make_model, blobs):
    model = make_model()
    model.adapt(*blobs)
    frames = chain_frames(model, np.array([0, 1, 2]), steps=40, frames=4, seed=0)
    assert frames.shape == (5, 3, 2)
    start = model.start.draw(3, tf.constant([0, 0]), tf.constant([0, 1, 2]))
    np.testing.assert_allclose(frames[0], start)
    assert (np.abs(np.diff(frames, axis=0)).max((1, 2)) > 0).all()
