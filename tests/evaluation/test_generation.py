"""Sample measures against closed forms, and extractors on files the tests make."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from scipy import linalg

from jem_tf import data, pictures
from jem_tf.data import ood_sets
from jem_tf.evaluation.measures import generation


def test_judge_tells_digits_from_noise():
    digits = data.load("digits")
    judge = generation.Judge(*digits.arrays("train"))
    x, y = digits.arrays("test")
    real = judge.quality(x, y)
    assert real.recognised > 0.97
    assert real.diversity == pytest.approx(1.0, abs=0.05)
    noise = judge.quality(ood_sets.load("noise", digits, len(x)), y)
    assert noise.recognised < 0.3
    copies = judge.quality(np.repeat(x[:1], 10, 0), np.repeat(y[:1], 10))
    assert copies.diversity == 0.0


def test_fid_of_gaussians_is_the_closed_form():
    """Features with exactly the wanted mean and covariance, so that no sampling error is left."""
    rng = np.random.default_rng(0)

    def gaussian(mean, covariance, n=500):
        z = rng.normal(size=(n, 4))
        z -= z.mean(0)
        z = z @ linalg.inv(linalg.cholesky(np.cov(z, rowvar=False)))
        return z @ linalg.cholesky(covariance) + mean

    a, b = (x @ x.T + np.eye(4) for x in rng.normal(size=(2, 4, 4)))
    mean = np.array([1.0, 0.0, 2.0, 0.0])
    expected = 5.0 + np.trace(a + b - 2 * linalg.sqrtm(a @ b)).real
    assert generation.frechet(gaussian(0, a), gaussian(mean, b)) == pytest.approx(expected)
    same = gaussian(0, a)
    assert generation.frechet(same, same) == pytest.approx(0.0, abs=1e-6)


def test_inception_score_of_known_cases():
    """Sure of each of 4 classes equally often: 4. The same answer for all: 1."""
    sure = np.repeat(np.eye(4), 100, axis=0)  # in the order of classes, as samples are
    assert generation.inception_score(sure, splits=1) == pytest.approx(4.0)
    assert generation.inception_score(sure) == pytest.approx(4.0, abs=0.15)  # uneven splits
    assert generation.inception_score(np.full((400, 4), 0.25)) == pytest.approx(1.0)


def test_neighbours_find_copies():
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(200, 3, 3, 1)), rng.normal(size=(100, 3, 3, 1))
    found, index = generation.neighbours(train[5:15], train, test)
    assert found.copies == 1.0 and found.samples == 0.0
    assert index.tolist() == list(range(5, 15))
    fresh, _ = generation.neighbours(rng.normal(size=(300, 3, 3, 1)), train, test)
    assert fresh.copies < 0.05
    assert fresh.samples == pytest.approx(fresh.test, rel=0.1)


@pytest.mark.slow
def test_small_classifier_orders_data_before_noise():
    digits = data.load("digits")
    x, y = digits.arrays("train")
    extract = generation.small_classifier(x, y, 10)
    test, _ = digits.arrays("test")
    noise = ood_sets.load("noise", digits, len(test))
    real, held, wrong = (extract(v) for v in (x, test, noise))
    assert real.probabilities.shape == (len(x), 10)
    near, far = (generation.frechet(real.values, v.values) for v in (held, wrong))
    assert far > 10 * near


def test_a_frozen_inception_graph_is_read_from_a_file(tmp_path):
    """A graph with the tensor names of the published one: features are the mean colour."""
    graph = tf.Graph()
    with graph.as_default():
        picture = tf.compat.v1.placeholder(tf.float32, [None, None, 3])
        batch = tf.identity(tf.expand_dims(picture, 0), "unused")
        batch = tf.compat.v1.placeholder_with_default(batch, [None, None, None, 3], "ExpandDims")
        pooled = tf.reduce_mean(batch, [1, 2], keepdims=True)
        tf.identity(pooled, "pool_3")
        tf.nn.softmax(tf.reshape(pooled, [1, 3]), name="softmax")
    path = tmp_path / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    extract = generation.inception(path)
    images = np.random.default_rng(0).uniform(-1, 1, (5, 8, 8, 1)).astype(np.float32)
    found = extract(images)
    expected = images.mean((1, 2)).repeat(3, axis=1) * 127.5 + 127.5
    np.testing.assert_allclose(found.values, expected, rtol=1e-5)
    assert found.probabilities.shape == (5, 3)


@pytest.mark.slow
def test_keras_inception_is_read_from_a_file(tmp_path):
    keras.applications.InceptionV3(weights=None).save_weights(tmp_path / "i.weights.h5")
    found = generation.inception(tmp_path / "i.weights.h5")(np.zeros((2, 8, 8, 1), np.float32))
    assert found.values.shape == (2, 2048) and found.probabilities.shape == (2, 1000)


def test_wrong_inception_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="no Inception network at"):
        generation.inception(tmp_path / "missing.pb")
    (tmp_path / "text.pb").write_text("not a graph")
    with pytest.raises(ValueError, match="not the frozen graph"):
        generation.inception(tmp_path / "text.pb")


def test_chain_frames_begin_at_noise_and_become_an_animation(tmp_path, make_model, blobs):
    model = make_model()
    model.adapt(*blobs)
    frames = generation.chain_frames(model, np.array([0, 1, 2]), steps=40, frames=4, seed=0)
    assert frames.shape == (5, 3, 2)
    start = model.start.draw(3, tf.constant([0, 0]), tf.constant([0, 1, 2]))
    np.testing.assert_allclose(frames[0], start)
    assert (np.abs(np.diff(frames, axis=0)).max((1, 2)) > 0).all()
    moving = np.random.default_rng(0).uniform(-1, 1, (6, 4, 8, 8, 1))
    pictures.save_animation(moving, 2, tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as gif:
        assert gif.n_frames == 6
