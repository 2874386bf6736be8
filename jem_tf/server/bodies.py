"""Bodies of HTTP requests: received up to a limit, and decompressed up to a limit."""

import zlib
from typing import Any

from jem_tf.server.errors import RequestError, invalid


async def read_body(receive: Any, max_bytes: int) -> bytes:
    """Return the body of an ASGI request.

    Raise `RequestError` if the body is larger than `max_bytes`, or if the client disconnects.
    """
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestError("CANCELLED", "The client disconnected.")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
        if size > max_bytes:
            raise RequestError(
                "RESOURCE_EXHAUSTED", f"The request body is larger than {max_bytes} bytes."
            )
    return b"".join(chunks)


def is_gzipped(scope: dict[str, Any]) -> bool:
    """Return whether the headers of an ASGI request say that its body is compressed by gzip."""
    return b"gzip" in dict(scope["headers"]).get(b"content-encoding", b"")


def gunzip(body: bytes, max_bytes: int) -> bytes:
    """Return `body` decompressed; raise `RequestError` if the result exceeds `max_bytes`."""
    try:
        content = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise invalid(f"The request body is not valid gzip: {error}") from error
    if len(content) > max_bytes:
        raise RequestError(
            "RESOURCE_EXHAUSTED",
            f"The request body is larger than {max_bytes} bytes after decompression.",
        )
    return content
