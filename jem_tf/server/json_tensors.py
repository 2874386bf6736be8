"""JSON requests as arrays and arrays as JSON answers, by the rules of TF Serving's REST API.

Not here: paths and status codes (`rest_api.py`).
"""

import base64
import binascii
import itertools
import json
import math
from typing import Any

import numpy as np
import orjson
import tensorflow as tf

from jem_tf.server.errors import RequestError, invalid
from jem_tf.server.servable import Arrays

DEEPEST = 32  # lists in lists; NumPy has 64 dimensions
SHOWN = 200  # characters of a wrong value that an error repeats
_KINDS = {type(None): "Null", bool: "Bool", dict: "Object", list: "Array", str: "String"}
_EXACT = {"float32": 2**24 - 1, "float64": 2**53 - 1}  # the largest integers without rounding
_INTEGERS = {"int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"}


def parse(body: bytes) -> dict[str, Any]:
    """The object in `body`."""
    if not body.strip():
        raise invalid("JSON Parse error: The document is empty")
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            found = json.loads(body)  # slower, and knows NaN and Infinity
            json.dumps(found, ensure_ascii=False).encode()  # half a character is no text
        except (ValueError, RecursionError) as error:
            raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(found, dict):
        raise invalid(f"JSON Value: {_shown(found)} Is not object")
    if not isinstance(found.get("signature_name", ""), str):
        raise invalid(
            f"JSON Value: {_shown(found)} not formatted correctly. 'signature_name' key must be a "
            "string value."
        )
    return found


def inputs_of(document: dict[str, Any], infos: Any) -> tuple[Arrays, bool]:
    """The inputs of a predict request for a signature with `infos`, and whether in rows."""
    if "inputs" in document and "instances" in document:
        raise invalid(
            f"JSON Value: {_shown(document)} Not formatted correctly expecting only one of "
            "'inputs' or 'instances' keys to exist "
        )
    if "instances" in document:
        return _rows(document, infos), True
    if "inputs" not in document:
        raise invalid("Missing 'inputs' or 'instances' key")
    given = document["inputs"]
    if not isinstance(given, dict) or _is_binary(given):
        if len(infos) != 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        given = {next(iter(infos)): given}
    for name in infos:
        if name not in given:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: array_of(given[name], info) for name, info in infos.items()}, False


def _rows(document: dict[str, Any], infos: Any) -> Arrays:
    rows = document["instances"]
    if not isinstance(rows, list):
        raise invalid(f"JSON Value: {_shown(document)} Excepting 'instances' to be an list/array")
    if not rows:
        raise invalid(f"JSON Value: {_shown(document)} No values in 'instances' array")
    named = isinstance(rows[0], dict) and not _is_binary(rows[0])
    if not named and len(infos) != 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    for i, row in enumerate(rows):
        if named and not isinstance(row, dict):
            raise invalid(f"Expecting object but got list at item {i} of input list")
        if not named and isinstance(row, dict) and not _is_binary(row):
            raise invalid(f"Expecting value/list but got object at item {i} of input list")
        if named and row.keys() != infos.keys():
            for key in row.keys() - infos.keys():
                raise invalid(
                    f"Failed to process element: {i} key: {key} of 'instances' list. Error: "
                    f"INVALID_ARGUMENT: JSON object: does not have named input: {key}"
                )
            raise invalid(
                f"Failed to process element: {i} of 'instances' list. JSON object: {_shown(row)} "
                f"keys must be equal to: {','.join(sorted(infos))}"
            )
    columns = {k: [row[k] for row in rows] for k in infos} if named else {next(iter(infos)): rows}
    found = {}
    for name, values in columns.items():
        try:
            found[name] = array_of(values, infos[name])
        except RequestError as error:
            where = f"key: {name} of 'instances' list" if named else "of 'instances' list"
            raise invalid(f"Failed to process element: {where}. Error: {error}") from error
    return found


def array_of(value: Any, info: Any) -> np.ndarray:
    """`value`, nested lists of one shape, as an array of the type of `info`."""
    dtype = tf.as_dtype(info.dtype)
    leaves, shape = _flattened(value)
    kinds = set(map(type, leaves))
    name, made = dtype.name, dtype.as_numpy_dtype
    if dtype == tf.string:
        array = np.empty(len(leaves), object)
        array[:] = [_text(leaf) for leaf in leaves]
        return array.reshape(shape)
    if dtype == tf.bool:
        fits = kinds <= {bool}
    elif name in _INTEGERS:
        fits = kinds <= {int}
    elif name in _EXACT:
        fits = kinds <= {int, float}
    else:
        text = f"Conversion of JSON Value: {_shown(value)} to type: {name}"
        raise RequestError("UNIMPLEMENTED", text)
    if not fits:
        wrong = next(v for v in leaves if not _fits(v, dtype))
        raise invalid(
            f"JSON Value: {_shown(wrong)} Type: {_KINDS.get(type(wrong), 'Number')} is not of "
            f"expected type: {name}"
        )
    try:
        if name in _EXACT:
            return _floats(leaves, int in kinds, name).reshape(shape)
        return np.array(leaves, made).reshape(shape)
    except OverflowError:
        largest = max(leaves, key=abs)
        raise invalid(
            f"Cannot convert JSON value: {_shown(largest)} to {name} without loss of precision."
        ) from None


def _floats(leaves: list[Any], integers: bool, name: str) -> np.ndarray:
    """`OverflowError` where a value has no near float of this type."""
    if integers and max(abs(v) for v in leaves if type(v) is int) > _EXACT[name]:
        raise OverflowError
    wide = np.array(leaves, np.float64)
    with np.errstate(over="ignore"):
        array = wide.astype(name)
    if (np.isinf(array) & np.isfinite(wide)).any():
        raise OverflowError
    return array


def _fits(value: Any, dtype: tf.DType) -> bool:
    if dtype == tf.bool:
        return type(value) is bool
    return type(value) is int or (type(value) is float and dtype.is_floating)


def _flattened(value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """The leaves of nested lists, and their shape, which must be the same everywhere."""
    shape: list[int] = []
    leaves, first = [value], value
    while isinstance(first, list):
        if len(shape) == DEEPEST:
            raise invalid(f"JSON Value: lists are nested more than {DEEPEST} deep")
        if set(map(type, leaves)) != {list}:
            wrong = next(v for v in leaves if not isinstance(v, list))
            raise invalid(
                f"JSON Value: {_shown(wrong)} found at incorrect level: {len(shape) + 1} in the "
                "JSON DOM. Expected deeper"
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


def _is_binary(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _text(leaf: Any) -> bytes:
    if isinstance(leaf, str):
        try:
            return leaf.encode()
        except UnicodeEncodeError as error:
            raise invalid(f"JSON Value: a string is not Unicode: {error}") from error
    if not isinstance(leaf, dict):
        kind = _KINDS.get(type(leaf), "Number")
        raise invalid(f"JSON Value: {_shown(leaf)} Type: {kind} is not of expected type: string")
    if not _is_binary(leaf):
        raise invalid(f"JSON Value: {_shown(leaf)} not formatted correctly for base64 data")
    try:
        text = "".join(leaf["b64"].split())
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error) as error:
        raise invalid("Unable to base64 decode") from error


def answer(results: Arrays, rows: bool) -> bytes:
    """The JSON answer to a predict request in rows or columns."""
    if not results:
        raise invalid("Cannot convert empty tensor map to JSON")
    values = {name: _jsonable(name, array) for name, array in results.items()}
    if not rows:
        return dump({"outputs": next(iter(values.values())) if len(values) == 1 else values})
    batch = None
    for name, array in results.items():
        if array.ndim == 0:
            raise invalid(f"Tensor name: {name} has no shape information ")
        batch = len(array) if batch is None else batch
        if len(array) != batch:
            raise invalid(
                f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {batch}"
            )
    if len(values) == 1:
        return dump({"predictions": next(iter(values.values()))})
    return dump({"predictions": [dict(zip(values, row)) for row in zip(*values.values())]})


def _jsonable(name: str, array: np.ndarray) -> Any:
    if array.dtype.kind in "OSU":
        binary = name.endswith("_bytes")
        return _each(array.tolist(), lambda v: _string(v, binary))
    if array.dtype.kind not in "biuf" or array.dtype == np.float16:
        raise invalid(f"Failed to write JSON value for tensor type: {array.dtype}")
    return np.ascontiguousarray(array) if array.ndim else array[()]


def _each(value: Any, convert: Any) -> Any:
    return [_each(v, convert) for v in value] if isinstance(value, list) else convert(value)


def _string(value: Any, binary: bool) -> Any:
    raw = value if isinstance(value, bytes) else str(value).encode()
    if binary:
        return {"b64": base64.b64encode(raw).decode()}
    return raw.decode(errors="replace")


def dump(document: Any) -> bytes:
    """JSON, with NaN and Infinity where there are such numbers."""
    if _finite(document):
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(document, default=lambda value: value.tolist()).encode()


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind != "f" or bool(np.isfinite(value).all())
    return not isinstance(value, float) or math.isfinite(value)


def examples_of(document: dict[str, Any], method: str) -> list[bytes]:
    """The serialised `tf.train.Example`s of a classify or regress request."""
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {_shown(document)} When method is {method}, key 'examples' is expected "
            "and was not found"
        )
    examples = document["examples"]
    if not isinstance(examples, list):
        raise invalid(
            f"JSON Value: {_shown(document)} Expecting 'examples' value to be an list/array"
        )
    if not examples:
        raise invalid(f"JSON Value: {_shown(document)} 'examples' value is an empty array")
    context = _example(document["context"]) if "context" in document else b""
    return [context + _example(example) for example in examples]


def _example(features: Any) -> bytes:
    if not isinstance(features, dict):
        kind = _KINDS.get(type(features), "Number")
        raise invalid(f"Example must be JSON object but got JSON {kind}")
    example = tf.train.Example()
    for name, value in features.items():
        values = value if isinstance(value, list) and not _is_binary(value) else [value]
        kinds = {_feature_kind(name, v) for v in values}
        if len(kinds) > 1:
            expected = _feature_kind(name, values[0])
            raise invalid(f"Unexpected element type in feature: {name} expecting type: {expected}")
        feature = example.features.feature[name]
        if kinds == {"bytes"}:
            feature.bytes_list.value.extend(_text(v) for v in values)
        elif kinds == {"float"}:
            feature.float_list.value.extend(values)
        elif kinds == {"int64"}:
            feature.int64_list.value.extend(int(v) for v in values)
    return example.SerializeToString()


def _feature_kind(name: str, value: Any) -> str:
    if isinstance(value, str) or _is_binary(value):
        return "bytes"
    if isinstance(value, float):
        return "float"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise invalid(f"Feature: {name} has uint64 element. Only int64 is supported.")
        return "int64"
    kind = _KINDS.get(type(value), "Number")
    raise invalid(f"Feature: {name} has element with unexpected JSON type: {kind}")


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, default=repr)
    except RecursionError:
        text = "a value of many levels"
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
