"""HTTP connections of slow clients: time limits for headers, and how many connections may be open.

Not here: the time limit for bodies (`bodies.py`), idle connections, which uvicorn closes.
"""

from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADER_BYTES = 2**16


class Connections:
    """The open connections of a server.

    If there are too many, the one is closed that has waited longest for the rest of a request; if
    none waits, the new one.

    Args:
        max_open: connections in total.
        max_per_client: connections of one address.
        header_seconds: time to send the headers of a request.
    """

    def __init__(self, max_open: int, max_per_client: int, header_seconds: float):
        self._max_open, self._max_per_client = max_open, max_per_client
        self.header_seconds = header_seconds
        self._open: Counter[str] = Counter()  # by client
        self._waiting: dict[Any, None] = {}  # the longest wait first

    def add(self, connection: Any) -> None:
        """Count a new connection, and close another one if there are too many."""
        self._open[connection.address] += 1
        self.wait(connection)
        if self._open[connection.address] > self._max_per_client:
            self._close_oldest([c for c in self._waiting if c.address == connection.address])
        elif self._open.total() > self._max_open:
            self._close_oldest(list(self._waiting))

    def _close_oldest(self, waiting: list[Any]) -> None:
        del self._waiting[waiting[0]]
        waiting[0].transport.abort()

    def wait(self, connection: Any) -> None:
        """Note that a connection waits for a request."""
        self._waiting[connection] = None

    def stop_waiting(self, connection: Any) -> None:
        """Note that a request has arrived completely."""
        self._waiting.pop(connection, None)

    def remove(self, connection: Any) -> None:
        """Forget a connection that was closed."""
        self.stop_waiting(connection)
        self._open[connection.address] -= 1
        self._open += Counter()  # drops addresses without connections


class HttpConnection(HttpToolsProtocol):
    """A connection of uvicorn that does not wait for ever.

    ```python
    uvicorn.Config(app, http=functools.partial(HttpConnection, Connections(1024, 256, 10.0)))
    ```
    """

    def __init__(self, connections: Connections, **arguments: Any):
        super().__init__(**arguments)
        self._limits, self._reads_headers, self._header_bytes = connections, True, 0
        self._timer: Any = None

    def connection_made(self, transport: Any) -> None:
        """Start the time for the first headers."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._start_timer()
        self._limits.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        self._limits.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse `data`, which may start headers; their time and length are limited."""
        self._header_bytes += len(data)
        super().data_received(data)
        if self._reads_headers and self._header_bytes:
            self._start_timer_if_idle()
            if self._header_bytes > MAX_HEADER_BYTES:
                self.send_400_response(f"Headers may have up to {MAX_HEADER_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        """Stop the time for headers."""
        self._reads_headers = False
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that the request is complete."""
        self._reads_headers, self._header_bytes = True, 0
        super().on_message_complete()
        if self.cycle.response_complete:  # the rest of a request that was refused
            self._stop_timer()
            self._start_timer_if_idle()
        else:
            self._limits.stop_waiting(self)

    def on_response_complete(self) -> None:
        """Wait for the next request, and a limited time for the rest of this one."""
        super().on_response_complete()
        if not self.transport.is_closing() and not self.pipeline:
            self._limits.wait(self)
            if not self._reads_headers or self._header_bytes:
                self._start_timer_if_idle()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without requests, although a client may not have read a response."""
        self.transport.abort()

    def _start_timer_if_idle(self) -> None:
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._start_timer()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._limits.header_seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
