"""JSON responses of TF Serving's REST API: arrays as rows or columns.

Not here: paths and status codes (`rest_api.py`). Messages are TF Serving's.
"""

import base64
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from jem_tf.server import limits
from jem_tf.server.errors import invalid
from jem_tf.server.servable import Arrays

TEXT_BYTES = 6  # of JSON and of Python objects, per byte of an array
_CHUNK = 2**14  # numbers


def format_outputs(outputs: Arrays, as_rows: bool) -> bytes:
    """Return the response to a predict request; raise `RequestError` if JSON cannot hold it."""
    if not outputs:
        raise invalid("Cannot convert empty tensor map to JSON")
    size = sum(array.nbytes for array in outputs.values())
    limits.reserve(TEXT_BYTES * size, "The response")
    values = {name: _to_json_value(name, array) for name, array in outputs.items()}
    if not as_rows:
        return dump({"outputs": next(iter(values.values())) if len(values) == 1 else values})
    batch_size = None
    for name, array in outputs.items():
        if array.ndim == 0:
            raise invalid(f"Tensor name: {name} has no shape information ")
        batch_size = len(array) if batch_size is None else batch_size
        if len(array) != batch_size:
            raise invalid(
                f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: "
                f"{batch_size}"
            )
    if len(values) == 1:
        return dump({"predictions": next(iter(values.values()))})
    return dump({"predictions": [dict(zip(values, row)) for row in zip(*values.values())]})


def dump(document: Any) -> bytes:
    """Return `document` as JSON; numbers that are not finite become NaN and Infinity.

    orjson has no such numbers. Python's encoder gets small parts: no other thread runs meanwhile.
    """
    if _is_finite(document):
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    if isinstance(document, dict):
        items = (dump(key) + b": " + dump(value) for key, value in document.items())
        return b"{" + b", ".join(items) + b"}"
    if isinstance(document, np.ndarray) and document.ndim == 1:
        parts = (document[i : i + _CHUNK].tolist() for i in range(0, len(document), _CHUNK))
        return b"[" + b", ".join(json.dumps(part)[1:-1].encode() for part in parts) + b"]"
    if isinstance(document, (list, np.ndarray)) and np.ndim(document):
        return b"[" + b", ".join(map(dump, document)) + b"]"
    return json.dumps(float(document)).encode()


def _to_json_value(name: str, array: np.ndarray) -> Any:
    if array.dtype.kind in "OSU":
        binary = name.endswith("_bytes")
        return _map_leaves(array.tolist(), lambda value: _string_value(value, binary))
    if array.dtype.kind not in "biuf" or array.dtype == np.float16:
        raise invalid(f"Failed to write JSON value for tensor type: {array.dtype}")
    return np.ascontiguousarray(array) if array.ndim else array[()]


def _map_leaves(value: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_map_leaves(item, convert) for item in value]
    return convert(value)


def _string_value(value: Any, binary: bool) -> Any:
    raw = value if isinstance(value, bytes) else str(value).encode()
    if binary:
        return {"b64": base64.b64encode(raw).decode()}
    return raw.decode(errors="replace")


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind != "f" or bool(np.isfinite(value).all())
    return not isinstance(value, float) or math.isfinite(value)
