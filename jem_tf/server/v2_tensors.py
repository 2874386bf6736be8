"""Tensors of the Open Inference Protocol (V2): datatypes, and arrays as bytes.

Not here: the messages that hold them (`v2_rest.py`, `v2_grpc.py`).
"""

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.server import limits
from jem_tf.server.errors import RequestError, invalid
from jem_tf.server.tensor_protos import STRING_BYTES

MAX_RANK = 32
MAX_SIZE = 2**40  # of a tensor
DATATYPES = {
    "BOOL": tf.bool,
    "UINT8": tf.uint8,
    "UINT16": tf.uint16,
    "UINT32": tf.uint32,
    "UINT64": tf.uint64,
    "INT8": tf.int8,
    "INT16": tf.int16,
    "INT32": tf.int32,
    "INT64": tf.int64,
    "FP16": tf.float16,
    "BF16": tf.bfloat16,
    "FP32": tf.float32,
    "FP64": tf.float64,
    "BYTES": tf.string,
}
_NAMES = {dtype: name for name, dtype in DATATYPES.items()}


def datatype(dtype: Any) -> str:
    """Return the name of a type of TensorFlow or NumPy; raise `RequestError` if V2 has none."""
    dtype = tf.string if dtype == np.dtype(object) else tf.as_dtype(dtype)
    if dtype not in _NAMES:
        raise RequestError("UNIMPLEMENTED", f"V2 has no datatype for {dtype.name}.")
    return _NAMES[dtype]


def parse_dtype(name: str, value: Any) -> tf.DType:
    """Return the type of the input `name`; raise `RequestError` if `value` names none."""
    if not isinstance(value, str) or value not in DATATYPES:
        raise invalid(f"The datatype of input {name} must be one of {', '.join(DATATYPES)}.")
    return DATATYPES[value]


def check_shape(name: str, shape: Any) -> tuple[int, ...]:
    """Return `shape` as a tuple; raise `RequestError` if it is none."""
    is_list = isinstance(shape, Sequence) and not isinstance(shape, (str, bytes))
    if (
        not is_list
        or len(shape) > MAX_RANK
        or not all(type(size) is int and size >= 0 for size in shape)
        or math.prod(max(size, 1) for size in shape) > MAX_SIZE  # of NumPy, even if empty
    ):
        text = f"up to {MAX_RANK} sizes that are not negative, with a product of at most {MAX_SIZE}"
        raise invalid(f"The shape of input {name} must be a list of {text}.")
    return tuple(shape)


def reshape(name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return `values` with `shape`; raise `RequestError` if their number differs."""
    if values.size != math.prod(shape):
        raise invalid(
            f"Input {name} has {values.size} values, and its shape {list(shape)} needs "
            f"{math.prod(shape)}."
        )
    return values.reshape(shape)


def from_bytes(
    name: str, dtype: tf.DType, shape: tuple[int, ...], raw: bytes | memoryview
) -> np.ndarray:
    """Return the tensor `raw`: numbers are little-endian, strings have their lengths before."""
    count = math.prod(shape)
    if dtype == tf.string:
        return _split_strings(name, raw, count).reshape(shape)
    if len(raw) != count * dtype.size:
        raise invalid(
            f"Input {name} has {len(raw)} bytes; {dtype.name} of shape {list(shape)} needs "
            f"{count * dtype.size}."
        )
    limits.reserve(2 * len(raw), f"The tensor {name}")
    if dtype == tf.bool:
        return (np.frombuffer(raw, np.uint8) != 0).reshape(shape)
    return np.frombuffer(raw, dtype.as_numpy_dtype).reshape(shape)


def _split_strings(name: str, raw: bytes | memoryview, count: int) -> np.ndarray:
    if 4 * count > len(raw):
        raise invalid(f"Input {name} has {len(raw)} bytes, too few for {count} strings.")
    limits.reserve(2 * (len(raw) + count * STRING_BYTES), f"The tensor {name}")
    strings, place = np.empty(count, object), 0
    for i in range(count):
        end = place + 4
        length = int.from_bytes(raw[place:end], "little")
        place = end + length
        if place > len(raw):
            raise invalid(f"Input {name} ends within string {i}.")
        strings[i] = bytes(raw[end:place])
    if place != len(raw):
        raise invalid(f"Input {name} has {len(raw) - place} bytes after its last string.")
    return strings


def to_bytes(array: np.ndarray) -> bytes:
    """Return a tensor as `from_bytes` takes it."""
    if array.dtype != object:
        return np.ascontiguousarray(array).tobytes()
    return b"".join(struct.pack("<I", len(value)) + value for value in array.ravel())
