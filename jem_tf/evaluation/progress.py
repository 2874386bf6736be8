"""Progress bars on a terminal, silence elsewhere."""

from collections.abc import Iterable
from typing import Any

from tqdm import tqdm


def bar(items: Iterable[Any], total: int | None = None, about: str = "") -> Iterable[Any]:
    """`items`, with a bar on the terminal once they have taken a second."""
    return tqdm(items, total=total, desc=about, delay=1.0, leave=False, disable=None)
