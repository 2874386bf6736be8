"""Chain starts: their ranges, moments and densities, against NumPy and SciPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import multivariate_normal

from jem_tf import GaussianMixture, Uniform
from jem_tf.sampling import default_start

SEED = tf.constant([3, 5])


def test_uniform_covers_the_range_of_each_feature():
    x = np.random.default_rng(0).uniform([0, -50], [1, 150], size=(2000, 2)).astype(np.float32)
    start = Uniform()
    start.adapt(x)
    points = start.draw(20_000, SEED).numpy()
    np.testing.assert_allclose(points.min(0), x.min(0), atol=0.05)
    np.testing.assert_allclose(points.mean(0), (x.min(0) + x.max(0)) / 2, atol=2.0)
    assert (points >= x.min(0)).all() and (points <= x.max(0)).all()


@pytest.mark.parametrize("shape", [(6,), (5, 3), (4, 4, 2)])
def test_points_have_the_shape_of_the_data(shape):
    x = np.random.default_rng(0).normal(size=(50, *shape)).astype(np.float32)
    for start in (Uniform(), GaussianMixture()):
        start.adapt(x, np.arange(50) % 2, 2)
        assert start.draw(7, SEED).shape == (7, *shape)
    assert start["mean"].shape == (2, *shape)


@pytest.mark.parametrize("rank", [64, 1])
def test_a_mixture_has_the_moments_of_each_class(rank):
    """The full covariance if the rank is large enough, otherwise the variances."""
    rng = np.random.default_rng(0)
    factor = np.array([[1.0, 0.0, 0.0], [2.0, 0.5, 0.0], [0.0, 0.0, 0.2]])
    x = (rng.normal(size=(2000, 3)) @ factor.T).astype(np.float32)
    y = np.arange(2000) % 2
    x[y == 1] += 10.0
    start = GaussianMixture(rank)
    start.adapt(x, y, 2)
    points = start.draw(40_000, SEED, tf.ones(40_000, tf.int32)).numpy()
    expected = np.cov(x[y == 1].T)
    np.testing.assert_allclose(points.mean(0), x[y == 1].mean(0), atol=0.06)  # 5 standard errors
    compare = np.diag if rank == 1 else np.asarray
    np.testing.assert_allclose(compare(np.cov(points.T)), compare(expected), atol=0.2)
    without_labels = start.draw(2000, SEED).numpy()
    assert abs((without_labels[:, 2] > 5).mean() - 0.5) < 0.06


@pytest.fixture(scope="module")
def classes():
    """Two correlated Gaussian classes in the plane, with shares 0.4 and 0.6."""
    rng = np.random.default_rng(0)
    y = (rng.uniform(size=6000) < 0.6).astype(int)
    roots = np.array([[[0.7, 0.0], [0.3, 0.6]], [[0.5, 0.0], [-0.2, 0.7]]])
    x = np.array([[-1.2, 0.0], [1.2, 0.5]])[y] + np.einsum(
        "nij,nj->ni", roots[y], rng.normal(size=(6000, 2))
    )
    return x.astype(np.float32), y


AXIS = np.linspace(-5, 5, 161).astype(np.float32)
GRID = np.stack(np.meshgrid(AXIS, AXIS, indexing="ij"), -1).reshape(-1, 2)
AREA = float(AXIS[1] - AXIS[0]) ** 2


def test_the_density_of_a_mixture_is_that_of_scipy(classes):
    x, y = classes
    start = GaussianMixture(floor=0.1)
    start.adapt(x, y, 2)
    floor = np.diag((0.1 * start.input_range.scale.numpy()) ** 2)
    density = 0.0
    for label in (0, 1):
        rows = x[y == label].astype(np.float64)
        component = multivariate_normal(rows.mean(0), np.cov(rows.T, bias=True) + floor)
        density += np.mean(y == label) * component.pdf(GRID[::37])
    log_density = start.log_density(GRID[::37])
    np.testing.assert_allclose(log_density, np.log(density), rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="`floor` above 0"):
        GaussianMixture().log_density(x)


def test_points_of_a_mixture_have_its_density(classes):
    """Mean log density of points against the entropy by the grid; standard error 0.01."""
    start = GaussianMixture(floor=0.2)
    start.adapt(*classes, 2)
    log_q = start.log_density(GRID).numpy().astype(np.float64)
    assert np.exp(log_q).sum() * AREA == pytest.approx(1.0, abs=1e-3)
    mean = start.log_density(start.draw(10_000, (1, 2))).numpy().mean()
    assert mean == pytest.approx((np.exp(log_q) * log_q).sum() * AREA, abs=0.03)


def test_a_share_of_the_points_is_uniform(classes):
    """Counted far outside of both Gaussians; five standard errors of 20 000 points."""
    x, y = classes
    x = np.concatenate([x, [[40.0, 40.0], [-40.0, -40.0]]]).astype(np.float32)
    y = np.concatenate([y, [-1, -1]])
    start = GaussianMixture(uniform_share=0.2)
    start.adapt(x, y, 2)
    points = start.draw(20_000, SEED).numpy()
    far = np.abs(points).max(1) > 8.0
    assert far.mean() == pytest.approx(0.2 * (1.0 - (8.0 / 40.0) ** 2), abs=0.014)
    np.testing.assert_allclose(points[~far].mean(0), x[:-2].mean(0), atol=0.1)
    assert start.draw(3, SEED[None] + [[1], [2], [3]], tf.constant([0, 1, 1])).shape == (3, 2)


def test_vectors_start_near_their_classes_by_default():
    """Within 16 MB: 1 000 classes of 2 048 features have covariances of rank 2."""
    assert isinstance(default_start((32, 32, 3), 10), Uniform)
    assert default_start((64,), 10).rank == 64
    assert default_start((2048,), 1000).rank == 2


def test_settings_survive_serialisation():
    start = GaussianMixture(rank=3, floor=0.1, uniform_share=0.2)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(start))
    assert (copy.rank, copy.floor, copy.uniform_share) == (3, 0.1, 0.2)


@pytest.mark.parametrize("options", [{"rank": 0}, {"floor": -1.0}, {"uniform_share": 1.5}])
def test_errors_quote_wrong_settings(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        GaussianMixture(**options)
