"""Flows: densities that integrate to 1, near the density of the data."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import multivariate_normal

from jem_tf.objectives import Flow

from .plane import AREA, GRID, draw_data, true_log_density


@pytest.fixture(scope="module")
def flow():
    flow = Flow(couplings=4, width=32, steps=600)
    flow.adapt(draw_data()[0])
    return flow


def test_a_flow_is_a_density_near_that_of_the_data(flow):
    """It integrates to 1, the likelihood of the data is near the truth, and samples have it."""
    x, _ = draw_data()
    log_q = flow.log_density(GRID).numpy().astype(np.float64)
    assert np.exp(log_q).sum() * AREA == pytest.approx(1.0, abs=0.01)
    truth = true_log_density(x).mean()
    assert truth - 0.15 < flow.log_density(x).numpy().mean() < truth + 0.02
    mean = flow.log_density(flow.draw(10_000, (1, 2))).numpy().mean()
    assert mean == pytest.approx((np.exp(log_q) * log_q).sum() * AREA, abs=0.05)


def test_the_density_is_that_of_finite_differences(flow):
    """log q(x) = log N(z) + log |dz/dx|."""
    bijector = flow._distribution().bijector
    x = np.array([[0.3, -0.4], [-1.0, 1.0]], np.float32)
    z = lambda v: bijector.inverse(tf.constant(v, tf.float32)).numpy().astype(float)  # noqa: E731
    step = 1e-2
    columns = [(z(x + step * e) - z(x - step * e)) / (2 * step) for e in np.eye(2)]
    jacobian = np.stack(columns, -1)
    expected = multivariate_normal(np.zeros(2)).logpdf(z(x)) + np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(flow.log_density(x), expected, atol=0.02)


@pytest.mark.slow
def test_samples_have_the_shape_of_the_data():
    flow = Flow(couplings=2, width=4, steps=1)
    flow.adapt(np.random.default_rng(0).normal(size=(20, 3, 2)).astype(np.float32))
    assert flow.draw(5, (1, 2)).shape == (5, 3, 2)
    assert not [w for network in flow.networks for w in network.trainable_weights]


def test_errors_quote_wrong_settings_and_shapes():
    with pytest.raises(ValueError, match="steps=0"):
        Flow(steps=0)
    with pytest.raises(ValueError, match=r"two values or more. Received: shape \(1,\)"):
        Flow().adapt(np.zeros((5, 1)))
