"""Densities that know their Z: noise, flows, and models trained by `nce` and `fce`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import multivariate_normal

import jem_tf
from jem_tf.objectives import FCE, NCE, Flow

AXIS = np.linspace(-5, 5, 161).astype(np.float32)
GRID = np.stack(np.meshgrid(AXIS, AXIS, indexing="ij"), -1).reshape(-1, 2)
AREA = float(AXIS[1] - AXIS[0]) ** 2
MEANS, SHARES = np.array([[-1.2, 0.0], [1.2, 0.5]]), (0.4, 0.6)
COVARIANCES = [np.array([[0.5, 0.2], [0.2, 0.4]]), np.array([[0.3, -0.1], [-0.1, 0.6]])]


def true_log_density(x):
    return np.log(
        sum(w * multivariate_normal(m, c).pdf(x) for w, m, c in zip(SHARES, MEANS, COVARIANCES))
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = (rng.uniform(size=6000) < SHARES[1]).astype(int)
    roots = [np.linalg.cholesky(c) for c in COVARIANCES]
    x = np.array([MEANS[k] + roots[k] @ rng.normal(size=2) for k in y])
    return x.astype(np.float32), y


def test_the_mixtures_density_is_scipys(data):
    x, y = data
    mixture = jem_tf.GaussianMixture(floor=0.1)
    mixture.adapt(x, y, 2)
    scale = mixture.scale.numpy()
    parts = [(np.mean(y == k), x[y == k].astype(np.float64)) for k in (0, 1)]
    expected = np.log(
        sum(
            share
            * multivariate_normal(
                rows.mean(0), np.cov(rows.T, bias=True) + np.diag((0.1 * scale) ** 2)
            ).pdf(GRID[::37])
            for share, rows in parts
        )
    )
    np.testing.assert_allclose(mixture.log_density(GRID[::37]), expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="`floor` above 0"):
        jem_tf.GaussianMixture().log_density(x)


def test_the_mixtures_draws_have_its_density(data):
    """Mean log density of draws against the entropy that the grid gives; standard error 0.01."""
    mixture = jem_tf.GaussianMixture(floor=0.2)
    mixture.adapt(*data, 2)
    log_q = mixture.log_density(GRID).numpy().astype(np.float64)
    assert np.exp(log_q).sum() * AREA == pytest.approx(1.0, abs=1e-3)
    drawn = mixture.log_density(mixture.draw(10_000, (1, 2))).numpy().mean()
    assert drawn == pytest.approx((np.exp(log_q) * log_q).sum() * AREA, abs=0.03)


@pytest.fixture(scope="module")
def flow(data):
    flow = flow_of(600)
    flow.adapt(data[0])
    return flow


def test_a_flow_is_a_density_near_the_data(flow, data):
    """Integrates to 1, gives data a likelihood near the truth's, and draws what it says."""
    log_q = flow.log_density(GRID).numpy().astype(np.float64)
    assert np.exp(log_q).sum() * AREA == pytest.approx(1.0, abs=0.01)
    truth = true_log_density(data[0]).mean()
    assert truth - 0.15 < flow.log_density(data[0]).numpy().mean() < truth + 0.02
    drawn = flow.log_density(flow.draw(10_000, (1, 2))).numpy().mean()
    assert drawn == pytest.approx((np.exp(log_q) * log_q).sum() * AREA, abs=0.05)


def test_the_flows_jacobian_by_differences(flow):
    """log q(x) = log N(z) + log |dz/dx|, the second by finite differences."""
    bijector = flow._distribution().bijector
    x = np.array([[0.3, -0.4], [-1.0, 1.0]], np.float32)
    z = lambda v: bijector.inverse(tf.constant(v, tf.float32)).numpy().astype(float)  # noqa: E731
    step = 1e-2
    columns = [(z(x + step * e) - z(x - step * e)) / (2 * step) for e in np.eye(2)]
    jacobian = np.stack(columns, -1)
    expected = multivariate_normal(np.zeros(2)).logpdf(z(x)) + np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(flow.log_density(x), expected, atol=0.02)


def flow_of(steps):
    return Flow(couplings=4, width=32, steps=steps)


def network():
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(64, "silu")(inputs)
    hidden = keras.layers.Dense(64, "silu")(hidden)
    squares = keras.ops.sum(keras.ops.square(inputs), axis=-1, keepdims=True)
    return keras.Model(inputs, keras.layers.Dense(2)(hidden) - 0.3 * squares)


@pytest.mark.parametrize(
    "objective",
    [
        lambda: NCE(),
        pytest.param(lambda: NCE(noise=flow_of(300)), marks=pytest.mark.slow),
        pytest.param(lambda: FCE(flow_of(300)), marks=pytest.mark.slow),
    ],
    ids=["nce", "nce with a flow", "fce"],
)
def test_the_learned_density_is_normalised_and_true(objective, data, tmp_path):
    """log Z within 0.05 nat of the grid's, and the data's likelihood within 0.05 of the truth's."""
    keras.utils.set_random_seed(0)
    model = jem_tf.JEM(network(), objective=objective(), input_noise=0.0, seed=0)
    schedule = keras.optimizers.schedules.CosineDecay(5e-3, 900, alpha=0.02)
    model.compile(keras.optimizers.Adam(schedule), metrics=["accuracy"])
    model.fit(*data, batch_size=200, epochs=30, verbose=0)
    log_p = model.log_density(GRID).astype(np.float64)
    assert np.log(np.exp(log_p).sum() * AREA) == pytest.approx(0.0, abs=0.05)
    truth = true_log_density(data[0]).mean()
    assert model.log_density(data[0]).mean() == pytest.approx(truth, abs=0.05)
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(copy.log_density(GRID[::99]), log_p[::99], rtol=1e-4, atol=1e-4)
    x = GRID[::99]
    np.testing.assert_allclose(
        copy.objective.noise.log_density(x), model.objective.noise.log_density(x), rtol=1e-5
    )


def test_models_that_do_not_know_z_say_so(make_model, blobs):
    with pytest.raises(ValueError, match="a model of Joint"):
        make_model().log_density(blobs[0])
