"""What `fit` shows of validation data: measured values only."""

import numpy as np
import pytest

from jem_tf.objectives import (
    FCE,
    HDGE,
    NCE,
    DualAdversarial,
    EnergyDiscrepancy,
    Flow,
    ScoreMatching,
)

SMALL_FLOW = {"couplings": 2, "width": 4, "steps": 2}
NOT_MEASURED = ("val_generative_loss", "val_discriminator_accuracy")


@pytest.mark.parametrize(
    "objective",
    [
        HDGE(),
        NCE(),
        FCE(Flow(**SMALL_FLOW)),
        DualAdversarial(steps=1, attack_steps=1),
        ScoreMatching(),
        EnergyDiscrepancy(samples=2),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_a_loss_that_validation_does_not_compute_is_not_shown(make_model, blobs, objective):
    """It was shown as 0.0, which reads as a measurement."""
    history = make_model(objective=objective).fit(
        *blobs, batch_size=100, epochs=1, verbose=0, validation_data=blobs
    )
    assert "generative_loss" in history.history and "val_loss" in history.history
    assert not set(NOT_MEASURED) & set(history.history)


def test_the_flow_of_fce_learns_from_the_inputs_of_the_model(make_model, blobs):
    """Both see the noisy data: the flow would otherwise learn another density."""
    import tensorflow as tf

    inputs = {}

    class Recording(FCE):
        def loss(self, model, batch, negatives):
            inputs["model"] = batch.x
            return super().loss(model, batch, negatives)

        def after_update(self, model, negatives, terms):
            inputs["flow"] = negatives[1].x
            super().after_update(model, negatives, terms)

    model = make_model(objective=Recording(Flow(**SMALL_FLOW)), input_noise=0.5)
    model.compile("adam", run_eagerly=True)
    model.fit(*blobs, batch_size=300, epochs=1, verbose=0, shuffle=False)
    np.testing.assert_array_equal(inputs["flow"], inputs["model"])
    assert np.abs(inputs["model"] - tf.constant(blobs[0])).max() > 0.1
