"""NCE: the logistic loss of two densities, and a learned density that is normalised."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

import jem_tf
from jem_tf.data.inputs import Summary
from jem_tf.objectives import NCE, Flow

from .plane import check_learned_density
from .toy import batch_of, check_by_differences, draw_data, make_toy_model, value_and_gradient


def test_the_loss_is_the_logistic_loss_of_the_two_densities():
    model = make_toy_model(objective="nce")
    objective = model.objective
    x, y = draw_data()
    model.adapt(x, y)
    objective.prepare(model, Summary(x, y, (x.min(0), x.max(0)), 60))
    batch = batch_of(model, x, y)
    noise = objective.negatives(model, batch, [tf.constant([1, 2])])
    loss = lambda: objective.loss(model, batch, noise).loss  # noqa: E731
    value, gradient = value_and_gradient(model, loss)

    def log_ratio(points):
        log_p = logsumexp(model.predict(points, verbose=0), axis=1) - float(objective.log_z)
        return log_p - objective.noise.log_density(points).numpy()

    inside = -np.log1p(np.exp(-log_ratio(x))).mean()
    outside = -np.log1p(np.exp(log_ratio(noise.numpy()))).mean()
    logits = model.predict(x, verbose=0)
    cross_entropy = (logsumexp(logits, axis=1) - logits[np.arange(60), y]).mean()
    assert value == pytest.approx(cross_entropy - inside - outside, rel=1e-4)
    check_by_differences(model, loss, gradient)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_noise",
    [
        lambda: None,
        lambda: Flow(couplings=4, width=32, steps=300),
    ],
    ids=["mixture", "flow"],
)
def test_the_learned_density_is_normalised_and_true(make_noise, tmp_path):
    check_learned_density(NCE(make_noise()), tmp_path)


def test_noise_without_a_density_raises():
    with pytest.raises(ValueError, match="whose density is known"):
        NCE(noise=jem_tf.Uniform())


def test_models_of_other_objectives_have_no_normalised_density(make_model, blobs):
    with pytest.raises(ValueError, match="a model of Joint"):
        make_model().log_density(blobs[0])
