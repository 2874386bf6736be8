"""JSON documents, parsed as TF Serving parses them; their objects are counted before they exist.

Not here: what the objects mean (`json_requests.py`). More than about 1000 nested values are refused
by the parsers.
"""

import gc
import json
import threading
from typing import Any

import orjson

from jem_tf.server import limits
from jem_tf.server.limits import Bytes

_CHUNK = 2**20  # counting a chunk takes about a millisecond, in which no other thread runs
_BYTES = {b"{": 232, b"[": 88, b",": 64, b'"': 16}  # of Python objects, measured with CPython 3.11


def loads(body: Bytes) -> Any:
    """Return the first JSON value in `body`.

    NaN and Infinity are numbers, text after the value is ignored, and the first of equal keys
    counts. Raise `ValueError` if there is no value, and `RequestError` if its objects would take
    more memory than is left for requests.
    """
    _reserve(body)
    with _collector_off:
        try:
            document = orjson.loads(body)
            return _parse_leniently(body) if _may_repeat_keys(body, document) else document
        except orjson.JSONDecodeError:
            return _parse_leniently(body)


class _CollectorOff:
    """Keeps the garbage collector off while any thread is in its block.

    It would look at the new objects many times, and find no garbage.
    """

    def __init__(self) -> None:
        self._lock, self._num_threads = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            self._num_threads += 1
            gc.disable()

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._num_threads -= 1
            if not self._num_threads:
                gc.enable()


_collector_off = _CollectorOff()


def parsed_bytes(body: Bytes) -> int:
    """Return about how many bytes the objects of a JSON document take, with copies of its text.

    Text that is not ASCII takes up to four bytes per character.
    """
    size = len(body) * (3 if body.isascii() and b"\\u" not in body else 6)
    for start in range(0, len(body), _CHUNK):
        size += sum(n * body.count(c, start, start + _CHUNK) for c, n in _BYTES.items())
    return size


def _reserve(body: Bytes) -> None:
    if len(body) > limits.FREE_BYTES:
        limits.reserve(parsed_bytes(body), "The parsed JSON")


def _parse_leniently(body: Bytes) -> Any:
    """Return the first value, parsed by Python's slower parser, as orjson does none of this."""
    _reserve(body)  # once more: keys and values are also listed as pairs
    decoder = json.JSONDecoder(object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    document, _ = decoder.raw_decode(body.decode("utf-8-sig").lstrip(" \t\r\n"))
    if b"\\u" in body:
        json.dumps(document, ensure_ascii=False).encode()  # fails for unpaired surrogates
    return document


def _may_repeat_keys(body: Bytes, document: Any) -> bool:
    """Return whether a key of `document` may be there twice: its name is, outside of rows."""
    if not isinstance(document, dict):
        return False
    keys = {"signature_name", "instances", "inputs", "examples", "context"} & document.keys()
    inputs = document.get("inputs")
    first = inputs[0] if isinstance(inputs, list) and inputs else inputs
    if "instances" in keys or isinstance(first, dict):
        keys.discard("inputs")  # which may be the name of an input as well
    return any(body.count(b'"%s"' % key.encode()) > 1 for key in keys)
