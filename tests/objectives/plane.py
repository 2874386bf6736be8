"""A known density in the plane, which a grid integrates."""

import keras
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import jem_tf

AXIS = np.linspace(-5, 5, 161).astype(np.float32)
GRID = np.stack(np.meshgrid(AXIS, AXIS, indexing="ij"), -1).reshape(-1, 2)
AREA = float(AXIS[1] - AXIS[0]) ** 2
MEANS, SHARES = np.array([[-1.2, 0.0], [1.2, 0.5]]), (0.4, 0.6)
COVARIANCES = [np.array([[0.5, 0.2], [0.2, 0.4]]), np.array([[0.3, -0.1], [-0.1, 0.6]])]


def true_log_density(x, added=0.0):
    """log p(x) of the mixture, or with the covariance `added` to that of each component."""
    components = zip(SHARES, MEANS, COVARIANCES)
    return np.log(
        sum(share * multivariate_normal(m, c + added).pdf(x) for share, m, c in components)
    )


def draw_data():
    """6 000 rows of the density, with the component as label."""
    rng = np.random.default_rng(0)
    y = (rng.uniform(size=6000) < SHARES[1]).astype(int)
    roots = np.array([np.linalg.cholesky(c) for c in COVARIANCES])
    x = MEANS[y] + np.einsum("nij,nj->ni", roots[y], rng.normal(size=(6000, 2)))
    return x.astype(np.float32), y


def train(objective):
    """Train a network whose log densities fall as -0.3 x² on the data."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(64, "silu")(inputs)
    hidden = keras.layers.Dense(64, "silu")(hidden)
    squares = keras.ops.sum(keras.ops.square(inputs), axis=-1, keepdims=True)
    network = keras.Model(inputs, keras.layers.Dense(2)(hidden) - 0.3 * squares)
    model = jem_tf.JEM(network, objective=objective, input_noise=0.0, seed=0)
    schedule = keras.optimizers.schedules.CosineDecay(5e-3, 900, alpha=0.02)
    model.compile(keras.optimizers.Adam(schedule))
    x, y = draw_data()
    model.fit(x, y, batch_size=200, epochs=30, verbose=0)
    return model


def divergence(model, added=0.0):
    """KL(truth || exp f) on the grid, both normalised there; `added` as for the truth."""
    logs = [true_log_density(GRID, added), model.ood_score(GRID, "log_density").astype(float)]
    truth, learned = (log - logsumexp(log) for log in logs)
    return float(np.sum(np.exp(truth) * (truth - learned)))


def check_learned_density(objective, tmp_path):
    """Train a model; assert that log Z is within 0.05 nats of that by the grid, and the likelihood
    of the data within 0.05 of the truth, also after saving and loading."""
    model = train(objective)
    x, _ = draw_data()
    log_p = model.log_density(GRID).astype(np.float64)
    assert np.log(np.exp(log_p).sum() * AREA) == pytest.approx(0.0, abs=0.05)
    truth = true_log_density(x).mean()
    assert model.log_density(x).mean() == pytest.approx(truth, abs=0.05)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    points = GRID[::99]
    np.testing.assert_allclose(copy.log_density(points), log_p[::99], rtol=1e-4, atol=1e-4)
    noise, expected = (m.objective.noise.log_density(points) for m in (copy, model))
    np.testing.assert_allclose(noise, expected, rtol=1e-5)
