"""Progress bars on a terminal, silence elsewhere."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm


def bar(items: Iterable[Any], total: int | None = None, about: str = "") -> Iterable[Any]:
    """`items`, with a bar on the terminal once they have taken a second."""
    return tqdm(items, total=total, desc=about, delay=1.0, leave=False, disable=None)


@contextmanager
def working(about: str) -> Iterator[None]:
    """A line on the terminal while something without countable parts goes on."""
    line = tqdm(total=None, desc=about, bar_format="{desc} … {elapsed}", leave=False, disable=None)
    try:
        yield
    finally:
        line.close()
