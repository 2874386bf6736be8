"""LiteRT models: built-in operators, and the answers of the SavedModel beside them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf.detection.search import count_at_most
from jem_tf.portable import portable
from jem_tf.saved_model import lite
from jem_tf.saved_model.fitted import Calibration
from jem_tf.saved_model.signatures import Signatures


def test_litert_gives_the_answers_of_the_signatures(model, images):
    from ai_edge_litert.interpreter import Interpreter

    signatures = Signatures(model, Calibration(temperature=1.5), ("dark", "light"), 1, 1, None)
    interpreter = Interpreter(model_content=lite.convert(signatures))
    assert set(interpreter.get_signature_list()) == set(lite.CONVERTED)
    rng = np.random.default_rng(0)  # no rows that the detector knows: their distance 0 is rounded
    rows = images[0][:3] + rng.normal(0, 0.1, (3, 6, 6, 1))
    x = np.concatenate([rows, rng.uniform(-1, 1, (2, 6, 6, 1))]).astype(np.float32)
    methods = (signatures.classify, signatures.logits, signatures.energy)
    for name, method in zip(lite.CONVERTED, methods, strict=True):
        answers = interpreter.get_signature_runner(name)(inputs=x)
        expected = method(tf.constant(x))
        assert set(answers) == set(expected)
        for output, value in expected.items():
            if value.dtype.is_floating:
                np.testing.assert_allclose(answers[output], value, rtol=1e-3, atol=1e-4)
            else:
                np.testing.assert_array_equal(answers[output], value)


def test_networks_with_fused_batch_norm_can_be_converted():
    from ai_edge_litert.interpreter import Interpreter

    keras.utils.set_random_seed(0)
    model = jem_tf.JEM(jem_tf.backbones.resnet((8, 8, 1), 2, width=2))
    signatures = Signatures(model, Calibration(1.0), ("dark", "light"), 1, 1, None)
    interpreter = Interpreter(model_content=lite.convert(signatures))
    x = np.random.default_rng(0).uniform(-1, 1, (3, 8, 8, 1)).astype("f4")
    energy = interpreter.get_signature_runner("energy")(inputs=x)["energy"]
    np.testing.assert_allclose(energy, model.energy(x), rtol=1e-4, atol=1e-4)


def test_tables_are_searched_alike_in_both_ways():
    rng = np.random.default_rng(0)
    table = np.sort(rng.integers(0, 9, (3, 20)), axis=1).astype(np.float32)
    values = rng.integers(-1, 10, (3, 7)).astype(np.float32)
    with portable():
        compared = count_at_most(tf.constant(table), tf.constant(values))
    np.testing.assert_array_equal(compared, count_at_most(table, values))
    expected = (table[:, None] <= values[:, :, None]).sum(-1)
    np.testing.assert_array_equal(compared, expected)


def test_operators_that_litert_lacks_are_named(tmp_path):
    inputs = keras.Input((4,))
    bessel = keras.layers.Lambda(tf.math.bessel_i0e)(inputs)
    model = jem_tf.JEM(keras.Model(inputs, keras.layers.Dense(2)(bessel)))
    with pytest.raises(ValueError, match=r"LiteRT cannot run this model, because of.*Bessel"):
        jem_tf.export(model, tmp_path / "m", warmup_batches=(1,), lite=True)
    assert list((tmp_path / "m").iterdir()) == []
