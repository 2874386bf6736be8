"""Bodies of requests: limits before and after decompression."""

import asyncio
import gzip

import pytest

from jem_tf.server import bodies
from jem_tf.server.bodies import gunzip, is_gzipped, read_body
from jem_tf.server.errors import RequestError
from jem_tf.server.limits import FREE_BYTES, Budget, Call


def receiver(*messages):
    """Return the `receive` function of an ASGI request."""
    iterator = iter(messages)

    async def receive():
        return next(iterator)

    return receive


def read(receive, max_bytes=3, seconds=None, headers=(), call=None):
    call = call or Call(Budget(100))
    return asyncio.run(read_body({"headers": headers}, receive, max_bytes, seconds, call, {}))


def chunk(body, more):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_in_chunks_is_joined():
    receive = receiver(chunk(b"ab", True), chunk(b"", True), chunk(b"c", False))
    assert read(receive) == b"abc"


def test_reading_stops_at_the_limit():
    endless = receiver(*[chunk(b"ab", True)] * 3)
    with pytest.raises(RequestError, match="larger than 3 bytes") as caught:
        read(endless)
    assert caught.value.code == "RESOURCE_EXHAUSTED"


def test_a_body_that_is_declared_too_large_is_not_read():
    with pytest.raises(RequestError, match="larger than 3 bytes"):
        read(receiver(), headers=[(b"content-length", b"4")])


def test_a_body_must_arrive_in_time():
    async def receive():
        await asyncio.sleep(0.02)
        return chunk(b"", True)

    with pytest.raises(RequestError, match="not arrive in time") as caught:
        read(receive, seconds=0.1)
    assert (caught.value.code, caught.value.http_status) == ("CANCELLED", 408)


def test_bodies_that_arrive_slowly_make_room_for_others(monkeypatch):
    """A client that sends most of a body, and stops, does not keep the memory of all requests."""
    monkeypatch.setattr(bodies, "SLOW_SECONDS", 0.1)
    budget, size = Budget(100), FREE_BYTES + 60

    async def stalled():
        waiting = iter([chunk(b"x" * size, True)])

        async def receive():
            return next(waiting, None) or await asyncio.sleep(60)

        return await read_body({"headers": ()}, receive, size, 30, Call(budget), arriving)

    async def other():
        receive = receiver(chunk(b"x" * size, False))
        return await read_body({"headers": ()}, receive, size, 30, Call(budget), arriving)

    async def both():
        first = asyncio.create_task(stalled())
        await asyncio.sleep(0.01)
        with pytest.raises(RequestError, match="needs 65596 bytes"):  # the first may be only young
            await other()
        await asyncio.sleep(0.15)
        assert len(await other()) == size
        with pytest.raises(RequestError, match="not arrive in time"):
            await first

    arriving = {}
    asyncio.run(both())
    assert not arriving


def test_bodies_share_a_budget_until_their_calls_are_closed():
    budget, size = Budget(100), FREE_BYTES + 60
    first, second = Call(budget), Call(budget)
    assert len(read(receiver(chunk(b"x" * size, False)), size, call=first)) == size
    with pytest.raises(RequestError, match="The request body needs 65596 bytes") as caught:
        read(receiver(chunk(b"x" * size, False)), size, call=second)
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert read(receiver(chunk(b"x", False)), call=second) == b"x"  # small ones are not charged
    first.close()
    read(receiver(chunk(b"x" * size, False)), size, call=second)


def test_a_client_that_disconnects_cancels_the_request():
    receive = receiver(chunk(b"a", True), {"type": "http.disconnect"})
    with pytest.raises(RequestError) as caught:
        read(receive)
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


def test_a_gzip_stream_must_be_complete_and_alone():
    body = gzip.compress(b"x" * 1000)
    for length in (0, 5, len(body) - 9, len(body) - 1):
        with pytest.raises(RequestError, match="truncated") as caught:
            gunzip(body[:length], 1000)
        assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(RequestError, match="something follows"):
        gunzip(body + body, 1000)


def test_the_header_says_whether_a_body_is_compressed():
    assert is_gzipped({"headers": [(b"content-encoding", b"gzip")]})
    assert not is_gzipped({"headers": [(b"accept-encoding", b"gzip")]})
