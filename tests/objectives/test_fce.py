"""FCE: the flow ascends the loss that the model descends, and the learned density is true."""

import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf.data.inputs import Summary
from jem_tf.objectives import FCE, Flow
from jem_tf.objectives.nce import logistic_losses

from .plane import check_learned_density


def test_an_update_makes_the_negatives_harder(make_model, blobs):
    """The logistic loss with noise of the same seed rises when the flow has been updated."""
    x, y = blobs[0], blobs[1]
    objective = FCE(Flow(couplings=2, width=8, steps=5), rate=1e-2)
    model = make_model(objective=objective)
    model.adapt(x)
    objective.prepare(model, Summary(x, y, (x.min(0), x.max(0)), 300))
    batch = model._unpack((tf.constant(x), tf.constant(y)))
    seeds = [tf.constant([1, 2]), tf.constant([3, 4])]

    def loss():
        both = tf.concat([x, objective.noise.draw(300, seeds[1])], axis=0)
        return float(
            tf.reduce_mean(logistic_losses(objective.log_ratio(model.logits(both), both), 300))
        )

    negatives = objective.negatives(model, batch, seeds)
    terms = objective.loss(model, batch, negatives)
    before, weights = loss(), [w.numpy() for w in objective.noise.flow_weights]
    objective.after_update(model, negatives, terms)
    assert loss() > before
    change = sum(
        np.sum((w.numpy() - old) ** 2) for w, old in zip(objective.noise.flow_weights, weights)
    )
    assert 0 < change <= (1e-2 * 1.001) ** 2  # the gradient is clipped to norm 1


@pytest.mark.slow
def test_the_learned_density_is_normalised_and_true(tmp_path):
    check_learned_density(FCE(Flow(couplings=4, width=32, steps=300)), tmp_path)


def test_noise_that_does_not_learn_raises():
    with pytest.raises(ValueError, match="must be a Flow"):
        FCE(noise=jem_tf.GaussianMixture(floor=0.1))
