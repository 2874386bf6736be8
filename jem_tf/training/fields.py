"""Types of the fields of a dataclass: checked against its annotations.

Not here: which fields there are (`recipe.py`).
"""

import dataclasses
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


def check_types(instance: Any) -> None:
    """Raise `ValueError` if a field of the dataclass `instance` has a value of another type."""
    hints = get_type_hints(type(instance))
    for field in dataclasses.fields(instance):
        value, hint = getattr(instance, field.name), hints[field.name]
        if not _fits(value, hint):
            kind = getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else str(hint)
            raise ValueError(
                f"`{field.name}` must be of type {kind.replace('None', 'none')}. "
                f"Received: {field.name}={value!r}"
            )


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is UnionType:
        return any(_fits(value, kind) for kind in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(v, get_args(hint)[0]) for v in value)
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if hint is float else get_origin(hint) or hint)
