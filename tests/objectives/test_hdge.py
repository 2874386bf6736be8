"""HDGE: the bound by enumeration of the batch, and its gradient."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp, softmax

from jem_tf.objectives import HDGE, CrossEntropy

from .toy import check_by_differences, draw_data, make_toy_model, value_and_gradient


@pytest.mark.parametrize("temperature", [None, 0.2])
@pytest.mark.parametrize("classifies", [True, False])
def test_the_bound_enumerates_the_batch(classifies, temperature):
    """If these points were the only ones, the bound would be log p(x | y) itself."""
    model = make_toy_model(objective=HDGE(0.7, classifies, temperature))
    x, y = draw_data()
    labels = np.where(np.arange(60) % 5, y, -1)
    weight = np.linspace(0.5, 2.0, 60).astype(np.float32)
    batch = model._unpack((tf.constant(x), tf.constant(labels), tf.constant(weight)))
    f = model.predict(x, verbose=0)
    if temperature is not None:
        f = f / np.linalg.norm(f, axis=1, keepdims=True) / temperature
    conditional = -np.log(softmax(f, axis=0)[np.arange(60), y])
    marginal = -np.log(softmax(logsumexp(f, axis=1)))
    expected = 0.7 * np.average(np.where(labels >= 0, conditional, marginal), weights=weight)
    if classifies:
        expected += float(CrossEntropy().loss(model, batch, None).loss)
    loss = lambda: model.objective.loss(model, batch, None).loss  # noqa: E731
    value, gradient = value_and_gradient(model, loss)
    assert value == pytest.approx(expected, rel=1e-5)
    check_by_differences(model, loss, gradient, step=1e-2 if temperature is None else 2e-4)


def test_files_with_a_queue_load():
    """Until version 0.2 there was a queue of earlier logits, which had no effect."""
    objective = HDGE.from_config({"name": "hdge", "weight": 0.5, "queue": 4096})
    objective.load_own_variables({"queue": np.zeros([1, 4096, 3]), "place": np.zeros(1, np.int32)})
    assert objective.weight == 0.5 and objective.classifies
    assert objective.arrays() == {}


@pytest.mark.parametrize("options", [{"weight": -1}, {"temperature": 0}])
def test_errors_quote_wrong_settings(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        HDGE(**options)
