"""Checks of arguments: errors that quote the value received.

Not here: checks of data (`data/inputs.py`) and of backbones (`model/backbone.py`).
"""

import difflib
import math
from collections.abc import Collection
from typing import Any

import numpy as np


def check_known(kind: str, name: str, known: Collection[str]) -> None:
    """Raise `ValueError` with the nearest name if `name` is not among `known`."""
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"Unknown {kind} {name!r}.{hint} Known: {', '.join(known)}.")


def check_positive_integer(name: str, value: Any, accepted: str = "a positive integer") -> None:
    """Raise `ValueError` unless `value` is an integer above zero."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise ValueError(f"`{name}` must be {accepted}. Received: {name}={value!r}")


def check_positive(name: str, value: Any, accepted: str = "a positive number") -> None:
    """Raise `ValueError` unless `value` is a finite number above zero."""
    try:
        valid = math.isfinite(value) and value > 0
    except TypeError:
        valid = False
    if not valid:
        raise ValueError(f"`{name}` must be {accepted}. Received: {name}={value!r}")


def check_not_negative(**values: Any) -> None:
    """Raise `ValueError` unless every value is zero or above."""
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"`{name}` must not be negative. Received: {name}={value!r}")


def check_probability(name: str, value: Any) -> None:
    """Raise `ValueError` unless `value` is between 0 and 1."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"`{name}` must be between 0 and 1. Received: {name}={value!r}")


def are_probabilities(values: np.ndarray) -> bool:
    """Whether all rows are probabilities, or their logarithms."""
    total = np.exp(values) if (values <= 0).all() else values
    return bool((total >= 0).all() and np.allclose(total.sum(-1), 1.0, atol=1e-3))


def check_kind(name: str, value: Any, kind: type) -> None:
    """Raise `TypeError` unless `value` is None or a `kind`."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"`{name}` must be a {kind.__name__}. Received: {name}={value!r}")
