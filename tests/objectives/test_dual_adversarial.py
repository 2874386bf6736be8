"""Dual adversarial training: negatives, attacks and loss against NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from jem_tf.objectives import DualAdversarial

from .toy import batch_of, draw_data, make_toy_model


def test_the_loss_is_logistic_and_robust():
    objective = DualAdversarial(steps=5, step_size=0.1, radius=0.2, attack_steps=3)
    model = make_toy_model(objective=objective)
    x, y = draw_data()
    model.adapt(x)
    batch, seed, scale = batch_of(model, x, y), tf.constant([1, 2]), model.input_range.scale

    def log_density(points):
        return logsumexp(model.predict(np.asarray(points), verbose=0), axis=1)

    def cross_entropy(points):
        logits = model.predict(np.asarray(points), verbose=0)
        return (logsumexp(logits, axis=1) - logits[np.arange(60), y]).mean()

    start = model.start.draw(60, seed)
    negatives = objective.negatives(model, batch, [seed])
    assert (log_density(negatives) >= log_density(start) - 1e-5).mean() > 0.9
    assert 0 < np.abs((negatives - start) / scale).max() <= 5 * 0.1 + 1e-5

    adversarial = objective._attack(model, batch, batch.x)
    distance = np.abs((adversarial - batch.x) / scale)
    assert distance.max() <= 0.2 + 1e-5 and distance.mean() > 0.1
    assert cross_entropy(adversarial) > cross_entropy(x)

    inside = np.log1p(np.exp(-log_density(x))).mean()
    outside = np.log1p(np.exp(log_density(negatives))).mean()
    terms = objective.loss(model, batch, batch.x, negatives)
    expected = cross_entropy(adversarial) + inside + outside
    assert float(terms.loss) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "options", [{"weight": -1}, {"radius": -1}, {"step_size": 0}, {"steps": 0}]
)
def test_errors_quote_wrong_settings(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        DualAdversarial(**options)
