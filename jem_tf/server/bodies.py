"""Bodies of HTTP requests: received up to a limit, and decompressed up to a limit."""

import asyncio
import contextlib
import time
import zlib
from collections.abc import Callable
from typing import Any

from jem_tf.server import limits
from jem_tf.server.errors import RequestError, invalid
from jem_tf.server.flags import Options
from jem_tf.server.limits import Bytes, Call
from jem_tf.server.workers import Arriving, Workers

_CHUNK = 2**20
SLOW_SECONDS = 2.0  # after which a body loses its memory if others need it


async def answer(
    workers: Workers,
    options: Options,
    scope: dict[str, Any],
    receive: Any,
    function: Callable[[Bytes], Any],
) -> Any:
    """Return `function(body)` for the body of an ASGI request, within the limits of requests.

    `function` runs in a thread, after the whole body has arrived.
    """
    call = workers.call(options.rest_api_timeout_in_ms / 1e3 or None)
    seconds, max_bytes = options.body_timeout_seconds or None, options.max_message_bytes
    body = await read_body(scope, receive, max_bytes, seconds, call, workers.arriving)

    def run() -> Any:
        return function(gunzip(body, max_bytes) if is_gzipped(scope) else body)

    return await workers.run(call, run)


async def read_body(
    scope: dict[str, Any],
    receive: Any,
    max_bytes: int,
    seconds: float | None,
    call: Call,
    arriving: Arriving,
) -> bytearray:
    """Return the body of an ASGI request, whose memory `call` holds.

    Raise `RequestError`, and close the call, if the body is larger than `max_bytes`, or does not
    arrive within `seconds`, or if the client disconnects.
    """
    timeout = asyncio.timeout(seconds)
    try:
        async with timeout:
            arriving[timeout] = time.monotonic()
            return await _read(scope, receive, max_bytes, call, arriving)
    except TimeoutError as error:
        call.close()
        text = "The request body did not arrive in time."
        raise RequestError("CANCELLED", text, http_status=408) from error  # by the client's fault
    except BaseException:
        call.close()
        raise
    finally:
        arriving.pop(timeout, None)


async def _reserve(call: Call, size: int, arriving: Arriving) -> None:
    """Hold `size` bytes; bodies that arrive slowly make room for them."""
    while True:
        try:
            return call.reserve(size, "The request body")
        except RequestError:
            oldest, begin = next(iter(arriving.items()))
            if time.monotonic() - begin < SLOW_SECONDS:
                raise
            del arriving[oldest]
            with contextlib.suppress(RuntimeError):  # it expires by itself just now
                oldest.reschedule(0.0)
            await asyncio.sleep(0.01)  # until it has given its bytes back


async def _read(
    scope: dict[str, Any], receive: Any, max_bytes: int, call: Call, arriving: Arriving
) -> bytearray:
    body, more = bytearray(), True  # joining chunks would take the memory twice
    declared = int(dict(scope["headers"]).get(b"content-length", 0))
    size = declared if declared > max_bytes else 0
    while more and size <= max_bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError("CANCELLED", "The client disconnected.")
        chunk = message.get("body", b"")
        await _reserve(call, len(chunk), arriving)
        body += chunk
        size += len(chunk)
        more = message.get("more_body", False)
    if size > max_bytes:
        raise RequestError(
            "RESOURCE_EXHAUSTED", f"The request body is larger than {max_bytes} bytes."
        )
    return body


def is_gzipped(scope: dict[str, Any]) -> bool:
    """Return whether the headers of an ASGI request say that its body is compressed by gzip."""
    return b"gzip" in dict(scope["headers"]).get(b"content-encoding", b"")


def gunzip(body: Bytes, max_bytes: int) -> Bytes:
    """Return `body` decompressed, whose memory the current call holds.

    Raise `RequestError` if `body` is not one complete gzip stream, or if the result exceeds
    `max_bytes`.
    """
    decompressor, content = zlib.decompressobj(16 + zlib.MAX_WBITS), bytearray()
    while not decompressor.eof:
        try:
            chunk = decompressor.decompress(body, _CHUNK)
        except zlib.error as error:
            raise invalid(f"The request body is not valid gzip: {error}") from error
        body = decompressor.unconsumed_tail
        if not chunk and not body and not decompressor.eof:
            raise invalid("The request body is not valid gzip: it is truncated.")
        limits.reserve(len(chunk), "The decompressed request body")
        content += chunk
        if len(content) > max_bytes:
            raise RequestError(
                "RESOURCE_EXHAUSTED",
                f"The request body is larger than {max_bytes} bytes after decompression.",
            )
    if decompressor.unused_data:
        raise invalid("The request body is not valid gzip: something follows the stream.")
    return content
