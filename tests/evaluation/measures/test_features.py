"""Feature extractors: a small classifier, and Inception networks that the tests write."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from jem_tf import data
from jem_tf.data import ood_sets
from jem_tf.evaluation.measures import features, generation


@pytest.mark.slow
def test_small_classifier_is_closer_to_test_data_than_to_noise():
    digits = data.load("digits")
    x, y = digits.arrays("train")
    extract = features.small_classifier(x, y, 10)
    x_test, _ = digits.arrays("test")
    noise = ood_sets.load("noise", digits, len(x_test))
    of_train, of_test, of_noise = (extract(v) for v in (x, x_test, noise))
    assert of_train.probabilities.shape == (len(x), 10)
    near, far = (generation.frechet(of_train.values, v.values) for v in (of_test, of_noise))
    assert far > 10 * near


def test_a_frozen_inception_graph_is_read_from_a_file(tmp_path):
    """A graph with the tensor names of the published one, whose features are the mean colour."""
    graph = tf.Graph()
    with graph.as_default():
        image = tf.compat.v1.placeholder(tf.float32, [None, None, 3])
        batch = tf.identity(tf.expand_dims(image, 0), "unused")
        batch = tf.compat.v1.placeholder_with_default(batch, [None, None, None, 3], "ExpandDims")
        pooled = tf.reduce_mean(batch, [1, 2], keepdims=True)
        tf.identity(pooled, "pool_3")
        tf.nn.softmax(tf.reshape(pooled, [1, 3]), name="softmax")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    extract = features.inception(path)
    images = np.random.default_rng(0).uniform(-1, 1, (5, 8, 8, 1)).astype(np.float32)
    extracted = extract(images)
    expected = images.mean((1, 2)).repeat(3, axis=1) * 127.5 + 127.5
    np.testing.assert_allclose(extracted.values, expected, rtol=1e-5)
    assert extracted.probabilities.shape == (5, 3)


@pytest.mark.slow
def test_keras_inception_is_read_from_a_file(tmp_path):
    path = tmp_path / "inception.weights.h5"
    keras.applications.InceptionV3(weights=None).save_weights(path)
    extracted = features.inception(path)(np.zeros((2, 8, 8, 1), np.float32))
    assert extracted.values.shape == (2, 2048) and extracted.probabilities.shape == (2, 1000)


def test_wrong_inception_files_raise_errors_with_their_path(tmp_path):
    with pytest.raises(ValueError, match="no Inception network at"):
        features.inception(tmp_path / "missing.pb")
    (tmp_path / "text.pb").write_text("not a graph")
    with pytest.raises(ValueError, match="not the frozen graph"):
        features.inception(tmp_path / "text.pb")
