"""Checks of arguments: what is accepted, and errors that quote the value received."""

import numpy as np
import pytest

from jem_tf import checks


def test_unknown_names_suggest_similar_ones():
    checks.check_known("colour", "red", ("red", "green"))
    with pytest.raises(ValueError, match=r"Unknown colour 'grean'\. Did you mean 'green'\? Known:"):
        checks.check_known("colour", "grean", ("red", "green"))
    with pytest.raises(ValueError, match=r"Unknown colour 'x'\. Known: red, green\."):
        checks.check_known("colour", "x", ("red", "green"))


@pytest.mark.parametrize("value", [0, -3, 2.5, True, "3", None])
def test_positive_integers(value):
    checks.check_positive_integer("n", 1)
    checks.check_positive_integer("n", np.int64(7))
    with pytest.raises(ValueError, match=f"`n` must be a positive integer. Received: n={value!r}"):
        checks.check_positive_integer("n", value)


@pytest.mark.parametrize("value", [0, -0.1, float("nan"), float("inf"), "x", None])
def test_positive_numbers(value):
    checks.check_positive("size", 1e-9)
    with pytest.raises(ValueError, match=f"`size` must be positive. Received: size={value!r}"):
        checks.check_positive("size", value, "positive")


@pytest.mark.parametrize("value", [-1, float("nan")])
def test_numbers_that_are_not_negative(value):
    checks.check_not_negative(weight=0, radius=2.0)
    with pytest.raises(
        ValueError, match=f"`radius` must not be negative. Received: radius={value}"
    ):
        checks.check_not_negative(weight=0, radius=value)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[0.2, 0.8], [0.5, 0.5]], True),
        (np.log([[0.2, 0.8], [0.5, 0.5]]), True),
        ([[0.2, 0.9], [0.5, 0.5]], False),
        ([[-3.0, 4.0], [0.5, 0.5]], False),
    ],
)
def test_probabilities_and_their_logarithms_are_recognised(rows, expected):
    assert checks.are_probabilities(np.array(rows)) == expected
