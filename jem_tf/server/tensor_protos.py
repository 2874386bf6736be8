"""Conversion between NumPy arrays and the `TensorProto`s of requests and responses."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.server import limits
from jem_tf.server.errors import invalid
from jem_tf.server.servable import Arrays

_CHUNK = 2**16
STRING_BYTES = 64  # of an empty string in Python and in TensorFlow
_VALUE_FIELDS = {
    np.dtype(dtype): f"{field}_val"
    for dtype, field in (
        ("int8", "int"),
        ("uint8", "int"),
        ("int16", "int"),
        ("int32", "int"),
        ("float32", "float"),
        ("float64", "double"),
        ("int64", "int64"),
        ("bool", "bool"),
        ("object", "string"),
    )
}


def to_arrays(protos: Any, max_bytes: int) -> Arrays:
    """Return the tensors in a map of `TensorProto`s as arrays.

    Raise `RequestError` if a proto is malformed, or if the arrays would take more than `max_bytes`
    in total: a few bytes of a proto can claim to be a huge tensor.
    """
    arrays, remaining = {}, max_bytes
    for name, proto in protos.items():
        try:
            size = _array_bytes(proto)
            remaining -= size
            if remaining < 0:
                raise invalid(
                    f"tensor parsing error: {name} is too large: {shape(proto)} takes {size} "
                    f"bytes, and the tensors of a request may take {max_bytes}"
                )
            limits.reserve(2 * size, f"The tensor {name}")  # for TensorFlow it is copied
            arrays[name] = tf.make_ndarray(proto)
        except (TypeError, ValueError, OverflowError, LookupError) as error:
            raise invalid(f"tensor parsing error: {name}: {error}") from error
    return arrays


def shape(proto: Any) -> list[int]:
    """Return the sizes of a `TensorProto`."""
    return [dim.size for dim in proto.tensor_shape.dim]


def _array_bytes(proto: Any) -> int:
    """Return the size of a tensor, where the last value is repeated as often as the shape says."""
    dtype, sizes = tf.as_dtype(proto.dtype), shape(proto)
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in sizes):
        raise ValueError(f"the shape {sizes} is not defined")
    count = math.prod(sizes)
    if dtype != tf.string:
        return count * max(dtype.size or 1, 1)
    repeated = count - len(proto.string_val)
    last = len(proto.string_val[-1]) if proto.string_val else 0
    return proto.ByteSize() + max(repeated, 0) * last + count * STRING_BYTES


def fill_proto(proto: Any, array: np.ndarray) -> None:
    """Write `array` to the value field of its type, where clients of TF Serving read it."""
    field = _VALUE_FIELDS.get(array.dtype)
    if field is None:
        proto.CopyFrom(tf.make_tensor_proto(array))
        return
    proto.dtype = tf.as_dtype(array.dtype if field != "string_val" else tf.string).as_datatype_enum
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    flat, values = array.ravel(), getattr(proto, field)
    for start in range(0, flat.size, _CHUNK):  # a list takes eight times the memory of an array
        values.extend(flat[start : start + _CHUNK].tolist())
