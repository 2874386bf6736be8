"""Bodies of requests: limits before and after decompression."""

import asyncio
import gzip

import pytest

from jem_tf.server.bodies import gunzip, is_gzipped, read_body
from jem_tf.server.errors import RequestError


def receiver(*messages):
    """Return the `receive` function of an ASGI request."""
    iterator = iter(messages)

    async def receive():
        return next(iterator)

    return receive


def chunk(body, more):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_in_chunks_is_joined():
    receive = receiver(chunk(b"ab", True), chunk(b"", True), chunk(b"c", False))
    assert asyncio.run(read_body(receive, 3)) == b"abc"


def test_reading_stops_at_the_limit():
    endless = receiver(*[chunk(b"ab", True)] * 3)
    with pytest.raises(RequestError, match="larger than 3 bytes") as caught:
        asyncio.run(read_body(endless, 3))
    assert caught.value.code == "RESOURCE_EXHAUSTED"


def test_a_client_that_disconnects_cancels_the_request():
    receive = receiver(chunk(b"a", True), {"type": "http.disconnect"})
    with pytest.raises(RequestError) as caught:
        asyncio.run(read_body(receive, 3))
    assert caught.value.code == "CANCELLED" and caught.value.http_status == 499


def test_gunzip_returns_up_to_the_limit():
    body = gzip.compress(b"x" * 1000)
    assert gunzip(body, 1000) == b"x" * 1000
    with pytest.raises(RequestError, match="larger than 999 bytes") as caught:
        gunzip(body, 999)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    with pytest.raises(RequestError, match="not valid gzip") as caught:
        gunzip(b"plain", 999)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_the_header_says_whether_a_body_is_compressed():
    assert is_gzipped({"headers": [(b"content-encoding", b"gzip")]})
    assert not is_gzipped({"headers": [(b"accept-encoding", b"gzip")]})
