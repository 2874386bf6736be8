"""Learning rate schedules against their formulas, before and after serialisation."""

import keras
import pytest

from jem_tf.callbacks.schedules import Cooled, Warmup


def copy_of(schedule):
    return keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))


def rates(schedule, *steps):
    return [float(schedule(step)) for step in steps]


@pytest.mark.parametrize("copied", [False, True], ids=["original", "copy"])
def test_warmup_rises_linearly_to_a_number_or_a_schedule(copied):
    constant = Warmup(0.1, steps=10)
    halving = Warmup(keras.optimizers.schedules.PiecewiseConstantDecay([20], [1.0, 0.5]), 10)
    if copied:
        constant, halving = copy_of(constant), copy_of(halving)
    assert rates(constant, 0, 5, 10, 99) == pytest.approx([0.0, 0.05, 0.1, 0.1])
    assert rates(halving, 0, 5, 10, 20, 21) == pytest.approx([0.0, 0.5, 1.0, 1.0, 0.5])


def test_warmup_over_no_steps_begins_after_the_first():
    assert rates(Warmup(0.1, steps=0), 0, 1, 2) == pytest.approx([0.0, 0.1, 0.1])


def test_cooled_multiplies_a_schedule_by_a_variable():
    factor = keras.Variable(1.0)
    schedule = Cooled(keras.optimizers.schedules.ExponentialDecay(1e-2, 10, 0.5), factor)
    assert rates(schedule, 0, 10) == pytest.approx([1e-2, 5e-3])
    factor.assign(0.2)
    assert rates(schedule, 0, 10) == pytest.approx([2e-3, 1e-3])
    assert rates(copy_of(schedule), 0, 10) == pytest.approx([1e-2, 5e-3])  # without its factor
