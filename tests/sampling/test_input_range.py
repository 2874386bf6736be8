"""The range of the inputs: for each feature, in the shape of a row, known after `adapt`."""

import keras
import numpy as np

from jem_tf.sampling import InputRange


def test_the_range_is_that_of_each_feature():
    x = np.random.default_rng(0).uniform(size=(50, 3, 2)).astype(np.float32) * [1.0, 200.0]
    input_range = InputRange()
    input_range.adapt(x)
    low, high = x.min((0, 1)), x.max((0, 1))
    expected = {"low": low, "high": high, "middle": (low + high) / 2, "scale": (high - low) / 2}
    for name, value in expected.items():
        bound = getattr(input_range, name)
        assert bound.shape == (3, 2)
        np.testing.assert_allclose(bound, np.broadcast_to(value, (3, 2)), rtol=1e-6)
    np.testing.assert_array_equal(input_range.numpy()[1][0], high.astype(np.float32))


def test_a_constant_feature_has_unit_scale():
    input_range = InputRange()
    input_range.adapt(np.array([[1.0, 5.0], [3.0, 5.0]], np.float32))
    np.testing.assert_allclose(input_range.scale, [1.0, 1.0])


def test_bounds_replace_the_range_of_the_rows():
    input_range = InputRange()
    input_range.adapt(np.zeros((4, 2), np.float32), (np.array([-1, -2]), np.array([3, 4])))
    np.testing.assert_array_equal(input_range.numpy(), [[-1, -2], [3, 4]])


def test_the_scale_is_1_until_the_range_is_known():
    input_range = InputRange()
    assert not input_range.adapted and float(input_range.scale) == 1.0
    input_range.adapt(np.array([[0.0], [4.0]], np.float32))
    assert input_range.adapted and float(input_range.scale[0]) == 2.0


def test_a_range_survives_saving(tmp_path):
    class Holder(keras.Model):
        def __init__(self):
            super().__init__()
            self.input_range, self.built = InputRange(), True

    model, copy = Holder(), Holder()
    model.input_range.adapt(np.array([[0.0, 1.0], [4.0, 2.0]], np.float32))
    model.save_weights(tmp_path / "range.weights.h5")
    copy.load_weights(tmp_path / "range.weights.h5")
    np.testing.assert_array_equal(copy.input_range.numpy(), [[0, 1], [4, 2]])
