"""JSON requests of TF Serving's REST API: rows, columns and examples as arrays.

Not here: conversion of values (`json_arrays.py`), paths and status codes (`rest_api.py`).
Messages are TF Serving's.
"""

import math
from typing import Any

import tensorflow as tf

from jem_tf.server import json_documents
from jem_tf.server.errors import RequestError, invalid
from jem_tf.server.examples import add_context
from jem_tf.server.json_arrays import format_value, is_base64, json_type, to_array, to_bytes
from jem_tf.server.limits import Bytes
from jem_tf.server.servable import Arrays


def parse_body(body: Bytes) -> dict[str, Any]:
    """Return the JSON object in `body`; raise `RequestError` if there is none."""
    if not body or body.isspace():
        raise invalid("JSON Parse error: The document is empty")
    try:
        document = json_documents.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {format_value(document)} Is not object")
    if not isinstance(document.get("signature_name", ""), str):
        raise invalid(
            f"JSON Value: {format_value(document)} not formatted correctly. 'signature_name' key "
            "must be a string value."
        )
    return document


def parse_inputs(document: dict[str, Any], infos: Any) -> tuple[Arrays, bool]:
    """Return the inputs of a predict request, and whether it has them as rows.

    Args:
        document: with the key "instances" (rows) or "inputs" (columns).
        infos: the `TensorInfo`s of the signature's inputs by name.
    """
    if "inputs" in document and "instances" in document:
        raise invalid(
            f"JSON Value: {format_value(document)} Not formatted correctly expecting only one of "
            "'inputs' or 'instances' keys to exist "
        )
    if "instances" in document:
        return _parse_rows(document, infos), True
    if "inputs" not in document:
        raise invalid("Missing 'inputs' or 'instances' key")
    inputs = document["inputs"]
    if not isinstance(inputs, dict) or is_base64(inputs):
        if len(infos) != 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        inputs = {next(iter(infos)): inputs}
    for name in infos:
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: to_array(inputs[name], info) for name, info in infos.items()}, False


def _parse_rows(document: dict[str, Any], infos: Any) -> Arrays:
    rows = document["instances"]
    if not isinstance(rows, list):
        raise invalid(
            f"JSON Value: {format_value(document)} Excepting 'instances' to be an list/array"
        )
    if not rows:
        raise invalid(f"JSON Value: {format_value(document)} No values in 'instances' array")
    named = isinstance(rows[0], dict) and not is_base64(rows[0])
    if not named and len(infos) != 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    for i, row in enumerate(rows):
        _check_row(i, row, named, infos)
    columns = {k: [row[k] for row in rows] for k in infos} if named else {next(iter(infos)): rows}
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = to_array(values, infos[name])
        except RequestError:
            _find_bad_row(values, infos[name], f"key: {name} " if named else "")
            raise
    return arrays


def _find_bad_row(values: list[Any], info: Any, key: str) -> None:
    """Raise `RequestError` for the first row that is no array, or not of the first row's shape."""
    shape = None
    for index, value in enumerate(values):
        try:
            array = to_array(value, info)
            shape = array.shape if shape is None else shape
            if array.size != math.prod(shape):
                raise invalid(f"Expecting tensor size: {math.prod(shape)} but got: {array.size}")
            if array.shape != shape:
                raise invalid(f"Expecting shape {list(shape)} but got: {list(array.shape)}")
        except RequestError as error:
            text = f"Failed to process element: {index} {key}of 'instances' list. Error: "
            raise invalid(f"{text}{error.code}: {error.message}") from error


def _check_row(index: int, row: Any, named: bool, infos: Any) -> None:
    """Raise `RequestError` unless `row` has the form of the first row."""
    if named and not isinstance(row, dict):
        raise invalid(f"Expecting object but got list at item {index} of input list")
    if not named and isinstance(row, dict) and not is_base64(row):
        raise invalid(f"Expecting value/list but got object at item {index} of input list")
    if named and row.keys() != infos.keys():
        for key in row.keys() - infos.keys():
            raise invalid(
                f"Failed to process element: {index} key: {key} of 'instances' list. Error: "
                f"INVALID_ARGUMENT: JSON object: does not have named input: {key}"
            )
        raise invalid(
            f"Failed to process element: {index} of 'instances' list. JSON object: "
            f"{format_value(row)} keys must be equal to: {','.join(sorted(infos))}"
        )


def parse_examples(document: dict[str, Any], method: str) -> list[bytes]:
    """Return the serialised `tf.train.Example`s of a classify or regress request."""
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {format_value(document)} When method is {method}, key 'examples' is "
            "expected and was not found"
        )
    examples = document["examples"]
    if not isinstance(examples, list):
        raise invalid(
            f"JSON Value: {format_value(document)} Expecting 'examples' value to be an list/array"
        )
    if not examples:
        raise invalid(f"JSON Value: {format_value(document)} 'examples' value is an empty array")
    context = _serialize_example(document["context"]) if "context" in document else b""
    return add_context(context, [_serialize_example(example) for example in examples])


def _serialize_example(features: Any) -> bytes:
    if not isinstance(features, dict):
        raise invalid(f"Example must be JSON object but got JSON {json_type(features)}")
    example = tf.train.Example()
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        types = {_feature_type(name, v) for v in values}
        if len(types) > 1:
            expected = _feature_type(name, values[0])
            raise invalid(f"Unexpected element type in feature: {name} expecting type: {expected}")
        feature = example.features.feature[name]
        if types == {"bytes"}:
            feature.bytes_list.value.extend(to_bytes(v) for v in values)
        elif types == {"float"}:
            feature.float_list.value.extend(values)
        elif types == {"int64"}:
            feature.int64_list.value.extend(int(v) for v in values)
    return example.SerializeToString()


def _feature_type(name: str, value: Any) -> str:
    if isinstance(value, str) or is_base64(value):
        return "bytes"
    if isinstance(value, float):
        return "float"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise invalid(f"Feature: {name} has uint64 element. Only int64 is supported.")
        return "int64"
    raise invalid(f"Feature: {name} has element with unexpected JSON type: {json_type(value)}")
