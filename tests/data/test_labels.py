"""Labels in all forms, on arrays and in the graph; wrong ones are quoted with their row."""

import numpy as np
import pytest
import tensorflow as tf

from jem_tf._tf.errors import short_errors
from jem_tf.data.labels import check_labels, check_weights, targets_of

INTEGERS = [0, 2, -1, 1]
ONE_HOT = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0.9, 0.1]])
FORMS = {
    "int32": np.array(INTEGERS, np.int32),
    "column": np.array(INTEGERS)[:, None],
    "float": np.array(INTEGERS, np.float32),
}


@pytest.mark.parametrize("form", FORMS)
def test_labels_become_integers_and_targets(form):
    assert check_labels(FORMS[form], classes=3).tolist() == INTEGERS
    labels, targets = targets_of(tf.constant(FORMS[form]), classes=3)
    np.testing.assert_array_equal(labels, INTEGERS)
    np.testing.assert_array_equal(targets, [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]])


def test_one_hot_and_soft_labels_are_targets():
    assert check_labels(ONE_HOT, classes=3).tolist() == INTEGERS
    np.testing.assert_allclose(targets_of(tf.constant(ONE_HOT), 3)[1], ONE_HOT)


def test_booleans_are_two_classes():
    y = np.array([True, False])
    assert check_labels(y, 2).tolist() == [1, 0]
    np.testing.assert_array_equal(targets_of(tf.constant(y), 2)[1], [[0, 1], [1, 0]])


WRONG = {
    "several labels": ([[0, 1, 0], [1, 1, 0]], "sum to 1"),
    "half a label": ([[0, 1, 0], [0.5, 0.0, 0.0]], "sum to 1"),
    "fraction": ([0.0, 1.5], "integers|between"),
    "nan": ([0.0, np.nan], "integers|between"),
    "too large": ([0, 3], "between 0 and 2"),
    "too small": ([0, -2], "between 0 and 2"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_wrong_labels_raise_short_errors(kind, graph):
    y, message = np.array(WRONG[kind][0]), WRONG[kind][1]
    with pytest.raises(ValueError, match=rf"({message}).*Received: \[?.* in row 11"):
        check_labels(y, classes=3, first_row=10)
    call = tf.function(targets_of) if graph else targets_of
    with pytest.raises(ValueError, match=f"({message}).*Received: ") as error, short_errors():
        call(tf.constant(y), 3)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("y", [np.array(["cat"]), np.zeros((2, 2, 2), int)])
def test_labels_of_another_kind_raise(y):
    with pytest.raises(ValueError, match=r"Labels must be integers.*dtype.*shape"):
        check_labels(y, classes=2)


@pytest.mark.parametrize(
    ("weights", "message"),
    [([0.0, 0.0], "All 2 sample weights are 0"), ([1.0, -1.0], "-1.0"), ([1.0, np.nan], "nan")],
)
def test_wrong_weights_raise(weights, message):
    with pytest.raises(ValueError, match=message):
        check_weights(weights)
    check_weights([0.0, 1.0])
