"""The memory that a serialised protocol buffer needs after parsing, estimated without parsing it.

A message of two-byte records (empty strings, empty examples) takes up to fifty times its size.
"""

from functools import cache
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor

from jem_tf.server import limits
from jem_tf.server.errors import RequestError, invalid

MAX_RECORDS = 2**18  # fields in a message and in the messages in it
_RECORD_BYTES = 32
_TEXT_TYPES = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def parsed_bytes(message: bytes, descriptor: Any) -> int:
    """Return about how many bytes the parsed message of type `descriptor` takes.

    Raise `RequestError` if it has too many records, or is malformed.
    """
    size, num_records = 0, 0
    parts = [(0, len(message), descriptor)]
    try:
        while parts:
            position, end, descriptor = parts.pop()
            fields = _fields(descriptor)
            size += 16 * len(fields)
            while position < end:
                num_records += 1
                if num_records % 4096 == 0:
                    limits.check_deadline()
                if num_records > MAX_RECORDS:
                    text = f"The message has more than {MAX_RECORDS} fields. Send it in parts."
                    raise RequestError("RESOURCE_EXHAUSTED", text)
                size += _RECORD_BYTES
                tag, position = _read_varint(message, position)
                if tag & 7 != 2:
                    position = _skip_scalar(message, position, tag & 7)
                    continue
                length, position = _read_varint(message, position)
                if position + length > end:
                    raise ValueError("a field ends after its message")
                field = fields.get(tag >> 3)
                if field is not None and field.message_type is not None:
                    parts.append((position, position + length, field.message_type))
                elif field is None or field.type in _TEXT_TYPES:
                    size += length
                else:  # packed numbers: the last byte of each is below 128
                    packed = np.frombuffer(message, np.uint8, length, position)
                    size += 8 * int(np.count_nonzero(packed < 128))
                position += length
            if position > end:
                raise ValueError("a field ends after its message")
    except (IndexError, ValueError) as error:
        raise invalid(f"The message is not a valid protocol buffer: {error}") from error
    return size


@cache
def _fields(descriptor: Any) -> dict[int, Any]:
    return {field.number: field for field in descriptor.fields}


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position`, and the position after it."""
    value = message[position]
    position += 1
    if value < 128:
        return value, position
    value, shift = value & 127, 7
    while shift < 70:
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise ValueError("a number has more than ten bytes")


def _skip_scalar(message: bytes, position: int, wire_type: int) -> int:
    if wire_type == 0:
        return _read_varint(message, position)[1]
    if wire_type in (1, 5):
        return position + (8 if wire_type == 1 else 4)
    raise ValueError(f"wire type {wire_type}")
