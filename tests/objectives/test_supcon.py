"""Supervised contrastive learning: the loss by enumeration of pairs."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from jem_tf.objectives import CrossEntropy, SupCon

from .toy import check_by_differences, draw_data, make_toy_model, value_and_gradient

TEMPERATURE = 0.3


def enumerate_pairs(logits, y, weight):
    """The weighted mean over rows i with positives p of -log softmax_a(z_i z_a / T)[p]."""
    z = logits / np.linalg.norm(logits, axis=1, keepdims=True)
    values, weights = [], []
    for i in np.flatnonzero(y >= 0):
        others = [a for a in np.flatnonzero(y >= 0) if a != i]
        products = {a: z[i] @ z[a] / TEMPERATURE for a in others}
        log_sum = logsumexp(list(products.values()))
        positives = [log_sum - products[p] for p in others if y[p] == y[i]]
        if positives:
            values.append(np.mean(positives))
            weights.append(weight[i])
    return np.average(values, weights=weights)


def test_the_loss_enumerates_pairs_of_labelled_rows():
    """Of 20 rows four have no label, and the only row of class 2 has no positive."""
    model = make_toy_model(objective=SupCon(weight=0.7, temperature=TEMPERATURE))
    x, y = draw_data()
    x, y = x[:20], np.where(y[:20] == 2, 0, y[:20])
    y[::5], y[3] = -1, 2
    weight = np.linspace(0.5, 2.0, 20).astype(np.float32)
    batch = model._unpack((tf.constant(x), tf.constant(y), tf.constant(weight)))
    loss = lambda: model.objective.loss(model, batch, None).loss  # noqa: E731
    value, gradient = value_and_gradient(model, loss)
    plain = float(CrossEntropy().loss(model, batch, None).loss)
    pairs = enumerate_pairs(model.predict(x, verbose=0).astype(float), y, weight)
    assert value == pytest.approx(plain + 0.7 * pairs, rel=1e-5)
    check_by_differences(model, loss, gradient)


def test_a_batch_without_pairs_has_no_contrast():
    model = make_toy_model(objective=SupCon())
    x, _ = draw_data()
    for y in ([0, 1, 2], [-1, -1, -1]):
        batch = model._unpack((tf.constant(x[:3]), tf.constant(y)))
        terms = model.objective.loss(model, batch, None)
        plain = CrossEntropy().loss(model, batch, None)
        assert float(terms.loss) == pytest.approx(float(plain.loss), abs=1e-6)


@pytest.mark.parametrize("options", [{"weight": -1}, {"temperature": 0}])
def test_errors_quote_wrong_settings(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        SupCon(**options)
