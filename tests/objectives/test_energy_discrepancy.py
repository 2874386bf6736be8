"""Energy discrepancy: its loss by enumeration, and the density that it learns."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from jem_tf.objectives import CrossEntropy, EnergyDiscrepancy

from . import gaussian, plane
from .toy import check_by_differences, draw_data, make_toy_model, value_and_gradient


@pytest.mark.parametrize("stabilisation", [0.0, 1.5])
def test_the_loss_enumerates_the_points_near_each_row(stabilisation):
    model = make_toy_model(objective=EnergyDiscrepancy(0.7, 0.3, 5, stabilisation))
    x, y = draw_data()
    model.adapt(x)
    weight = np.linspace(0.5, 2.0, 60).astype(np.float32)
    labels = np.where(np.arange(60) % 5, y, -1)
    batch = model._unpack((tf.constant(x), tf.constant(labels), tf.constant(weight)))
    near = model.objective.negatives(model, batch, [tf.constant([1, 2]), tf.constant([3, 4])])
    loss = lambda: model.objective.loss(model, batch, near).loss  # noqa: E731
    value, gradient = value_and_gradient(model, loss)

    def energy(points):
        return -logsumexp(model.predict(points, verbose=0).astype(float), axis=1)

    of_near = energy(near.numpy()).reshape(5, 60)
    values = [
        np.log(stabilisation / 5 + np.exp(own - others).mean())
        for own, others in zip(energy(x), of_near.T)
    ]
    plain = float(CrossEntropy().loss(model, batch, None).loss)
    assert value == pytest.approx(plain + 0.7 * np.average(values, weights=weight), rel=1e-4)
    check_by_differences(model, loss, gradient)


def test_points_near_a_row_share_one_perturbation():
    """Variance 2 σ² around the row, of which σ² is shared; in half ranges. 10 000 points: the
    standard error of a variance is 1.4 %, of the shared one 5 % with 800 rows."""
    model = make_toy_model(objective=EnergyDiscrepancy(sigma=0.2, samples=50))
    x = np.repeat(np.float32([[-3.0], [3.0]]), 400, axis=0)
    model.adapt(x)
    batch = model._unpack((tf.constant(x), tf.zeros([800], tf.int32)))
    near = model.objective.negatives(model, batch, [tf.constant([1, 2]), tf.constant([3, 4])])
    moved = near.numpy().reshape(50, 800) - x[:, 0]
    unit = (0.2 * 3.0) ** 2
    assert moved.var() == pytest.approx(2 * unit, rel=0.1)
    assert moved.var(axis=0).mean() == pytest.approx(unit, rel=0.05)


def test_the_optimum_for_a_gaussian_is_the_gaussian():
    """Noise does not widen the density, unlike in score matching. For N(0, v) in one dimension and
    many points the loss is -log(1 + σ² / v) / 2. The logarithm of a mean of 200 points is biased by
    its variance, about 0.005; 5 000 rows leave slopes of 0.01."""
    objective = EnergyDiscrepancy(sigma=0.2, samples=200, stabilisation=0.0)
    means, variances = gaussian.MEANS, gaussian.VARIANCES
    value, slopes = gaussian.loss_and_slopes(objective, means, variances, rows=5000)
    ratio = (0.2 * gaussian.HALF_RANGES) ** 2 / variances
    assert value == pytest.approx(-0.5 * np.log1p(ratio).sum(), abs=0.03)
    np.testing.assert_allclose(slopes, 0.0, atol=0.03)
    for wrong in ((means, 1.5 * variances), (means + 0.5, variances)):
        more, slopes = gaussian.loss_and_slopes(objective, *wrong, rows=5000)
        assert more > value + 0.03 and np.abs(slopes).max() > 0.05


@pytest.mark.slow
def test_the_learned_density_is_that_of_the_data():
    """On a grid, against the mixture of Gaussians."""
    model = plane.train(EnergyDiscrepancy(sigma=0.3, samples=16))
    assert plane.divergence(model) < 0.03  # nats


@pytest.mark.parametrize(
    "options", [{"weight": -1}, {"sigma": 0}, {"samples": 0}, {"stabilisation": -1}]
)
def test_errors_quote_wrong_settings(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        EnergyDiscrepancy(**options)
