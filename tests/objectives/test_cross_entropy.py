"""The loss of a plain classifier is that of Keras, and needs labels."""

import keras
import numpy as np
import pytest

from jem_tf.objectives import CrossEntropy

from .toy import batch_of, draw_data, make_toy_model, value_and_gradient


def test_loss_and_gradient_are_those_of_keras():
    model = make_toy_model(objective="cross_entropy")
    x, y = draw_data()
    batch = batch_of(model, x, y)
    loss = lambda: model.objective.loss(model, batch, None).loss  # noqa: E731
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    expected = value_and_gradient(model, lambda: keras_loss(y, model.backbone(x)))
    for value, other in zip(value_and_gradient(model, loss), expected):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["cross_entropy", "factored"])
def test_data_without_labels_raises(name, make_model, blobs):
    model = make_model(objective=name)
    with pytest.raises(ValueError, match=r"learns from labels. Received: 300 rows"):
        model.fit(blobs[0], np.full(300, -1), verbose=0)


def test_label_smoothing_is_that_of_keras():
    model = make_toy_model(objective=CrossEntropy(label_smoothing=0.2))
    x, y = draw_data()
    targets = keras.utils.to_categorical(y, model.num_classes)
    expected = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2)(
        targets, model.backbone(x)
    )
    loss = model.objective.loss(model, batch_of(model, x, y), None).loss
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert CrossEntropy.from_config(model.objective.get_config()).label_smoothing == 0.2
    with pytest.raises(ValueError, match=r"below 1. Received: label_smoothing=1"):
        CrossEntropy(label_smoothing=1)
