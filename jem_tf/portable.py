"""Whether graphs are traced for LiteRT, which has fewer operators.

Not here: what is then computed in another way (`detection/search.py`, `backbones/fused.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_PORTABLE = ContextVar("portable", default=False)


@contextmanager
def portable() -> Iterator[None]:
    """Inside, graphs are traced with operators that LiteRT has."""
    token = _PORTABLE.set(True)
    try:
        yield
    finally:
        _PORTABLE.reset(token)


def is_portable() -> bool:
    """Whether this is inside of `portable`."""
    return _PORTABLE.get()
