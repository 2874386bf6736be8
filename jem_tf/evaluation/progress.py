"""Progress bars on a terminal; no output elsewhere."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm


def bar(items: Iterable[Any], total: int | None = None, about: str = "") -> Iterable[Any]:
    """Return `items` with a progress bar, which appears after one second."""
    return tqdm(items, total=total, desc=about, delay=1.0, leave=False, disable=None)


@contextmanager
def working(about: str) -> Iterator[None]:
    """Show `about` and the elapsed time while the body of the `with` statement runs."""
    line = tqdm(total=None, desc=about, bar_format="{desc} … {elapsed}", leave=False, disable=None)
    try:
        yield
    finally:
        line.close()
