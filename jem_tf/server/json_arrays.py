"""JSON values as arrays, with the type rules of TF Serving's REST API.

Not here: the keys of a request (`json_requests.py`). Messages are TF Serving's.
"""

import base64
import binascii
import itertools
import json
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.server.errors import RequestError, invalid

MAX_DEPTH = 32  # of nested lists; NumPy has up to 64 dimensions
MAX_SHOWN_CHARACTERS = 200  # of a value in an error message
_JSON_TYPES = {type(None): "Null", bool: "Bool", dict: "Object", list: "Array", str: "String"}
_FLOAT_TYPES = {"float32", "float64"}
_INTEGER_TYPES = {"int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"}


def to_array(value: Any, info: Any) -> np.ndarray:
    """Return nested lists as an array of the type of the `TensorInfo` `info`.

    Raise `RequestError` if the lists are ragged or a value does not fit the type.
    """
    dtype = tf.as_dtype(info.dtype)
    leaves, shape = _flatten(value)
    if dtype == tf.string:
        array = np.empty(len(leaves), object)
        array[:] = [to_bytes(leaf) for leaf in leaves]
        return array.reshape(shape)
    accepted_types = _accepted_types(value, dtype)
    if not set(map(type, leaves)) <= accepted_types:
        wrong = next(leaf for leaf in leaves if type(leaf) not in accepted_types)
        raise _type_error(wrong, dtype)
    try:
        if dtype.name in _FLOAT_TYPES:  # the nearest float, or infinity, as C++ converts
            with np.errstate(over="ignore"):
                return np.array(leaves, np.float64).astype(dtype.name).reshape(shape)
        return np.array(leaves, dtype.as_numpy_dtype).reshape(shape)
    except OverflowError:
        raise _type_error(max(leaves, key=abs), dtype) from None


def to_bytes(leaf: Any) -> bytes:
    """Return a JSON string, or an object `{"b64": ...}`, as bytes."""
    if isinstance(leaf, str):
        try:
            return leaf.encode()
        except UnicodeEncodeError as error:
            raise invalid(f"JSON Value: a string is not Unicode: {error}") from error
    if not isinstance(leaf, dict):
        raise _type_error(leaf, tf.string)
    if not is_base64(leaf):
        raise invalid(f"JSON Value: {format_value(leaf)} not formatted correctly for base64 data")
    try:
        text = "".join(leaf["b64"].split())
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error) as error:
        raise invalid("Unable to base64 decode") from error


def is_base64(value: Any) -> bool:
    """Return whether `value` is an object `{"b64": "..."}`."""
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def json_type(value: Any) -> str:
    """Return the name of the JSON type of `value`."""
    return _JSON_TYPES.get(type(value), "Number")


def format_value(value: Any) -> str:
    """Return `value` as JSON for an error message, truncated."""
    text = ""
    try:
        for part in json.JSONEncoder(default=repr).iterencode(value):
            text += part
            if len(text) > MAX_SHOWN_CHARACTERS:
                break
    except RecursionError:
        text = "a deeply nested value"
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "..."


def _accepted_types(value: Any, dtype: tf.DType) -> set[type]:
    if dtype == tf.bool:
        return {bool}
    if dtype.name in _INTEGER_TYPES:
        return {int}
    if dtype.name in _FLOAT_TYPES:
        return {int, float}
    text = f"Conversion of JSON Value: {format_value(value)} to type: {dtype.name}"
    raise RequestError("UNIMPLEMENTED", text)


def _type_error(value: Any, dtype: tf.DType) -> RequestError:
    return invalid(
        f"JSON Value: {format_value(value)} Type: {json_type(value)} is not of expected type: "
        f"{dtype.name}"
    )


def _flatten(value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the leaves of nested lists and their shape; raise `RequestError` if ragged."""
    shape: list[int] = []
    leaves, first = [value], value
    while isinstance(first, list):
        if len(shape) == MAX_DEPTH:
            raise invalid(f"JSON Value: lists are nested more than {MAX_DEPTH} deep")
        if set(map(type, leaves)) != {list}:
            wrong = next(v for v in leaves if not isinstance(v, list))
            raise invalid(
                f"JSON Value: {format_value(wrong)} found at incorrect level: {len(shape) + 1} in "
                "the JSON DOM. Expected deeper"
            )
        sizes = set(map(len, leaves))
        if len(sizes) > 1:
            other = next(n for n in map(len, leaves) if n != len(first))
            raise invalid(
                f"Encountered list at unexpected size: {other} at level: {len(shape)} expected "
                f"size: {len(first)}"
            )
        shape.append(len(first))
        leaves = list(itertools.chain.from_iterable(leaves))
        first = first[0] if first else None
    if list in set(map(type, leaves)):
        raise invalid(f"Encountered list at unexpected level: {len(shape)} expected < {len(shape)}")
    return leaves, tuple(shape)
