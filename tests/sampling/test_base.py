"""What samplers share: settings, their checks, and the size of a step."""

import keras
import pytest
import tensorflow as tf

from jem_tf import MALA, SGLD


@pytest.mark.parametrize("kind", [SGLD, MALA])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"steps": -3}, "steps=-3"),
        ({"steps": 2.5}, "steps=2.5"),
        ({"step_size": 0.0}, "step_size=0.0"),
        ({"step_size": "big"}, "step_size='big'"),
    ],
)
def test_errors_quote_wrong_settings(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


@pytest.mark.parametrize(
    "sampler",
    [SGLD(7, 0.5, 0.1, 0.2, 0.3), SGLD(), SGLD.langevin(9), MALA(5, 1e-2, 0.5)],
    ids=["numbers", "auto", "schedule", "mala"],
)
def test_settings_survive_serialisation(sampler):
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(sampler))
    assert copy.get_config() == sampler.get_config()


def test_the_tuned_value_is_the_size_of_auto_and_a_factor_of_numbers():
    first = tf.constant(0)
    assert float(SGLD().step_size_at(first, 0.3)) == pytest.approx(0.3)
    assert float(SGLD(step_size=0.5).step_size_at(first, 0.3)) == pytest.approx(0.15)
    assert float(SGLD(step_size=0.5).step_size_at(first, None)) == 0.5
    assert float(SGLD().step_size_at(first, None)) == SGLD().step_size_bounds[1]
