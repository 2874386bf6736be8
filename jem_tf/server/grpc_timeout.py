"""Calls that send headers and no message: they wait for a limited time, and take no thread.

Not here: what happens to the message (`grpc_api.py`).
"""

import asyncio
import contextlib
from typing import Any

import grpc


class MessageTimeout:
    """Refuses calls whose message does not arrive in time.

    If more than `max_waiting` calls wait, the one that has waited longest is refused.

    ```python
    timeout = MessageTimeout(seconds=30.0, max_waiting=1024)
    timeout.wrap(grpc.unary_unary_rpc_method_handler(respond))
    ```
    """

    def __init__(self, seconds: float | None, max_waiting: int):
        self._seconds, self._max_waiting = seconds, max_waiting
        self._waiting: dict[asyncio.Timeout, None] = {}  # the longest wait first

    def wrap(self, handler: Any) -> Any:
        """Return the handler of a method with one request, made to read the request itself."""
        respond = handler.unary_stream if handler.response_streaming else handler.unary_unary

        async def read_and_respond(_: Any, context: Any) -> Any:
            return await respond(await self._read(context), context)

        make_handler = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        return make_handler(
            read_and_respond, handler.request_deserializer, handler.response_serializer
        )

    async def _read(self, context: Any) -> Any:
        timeout, message = asyncio.timeout(self._seconds), grpc.aio.EOF
        try:
            async with timeout:
                self._waiting[timeout] = None
                if len(self._waiting) > self._max_waiting:
                    oldest = next(iter(self._waiting))
                    del self._waiting[oldest]
                    with contextlib.suppress(RuntimeError):  # it expires by itself just now
                        oldest.reschedule(0.0)
                message = await context.read()
        except TimeoutError:
            text = "The message of the call did not arrive in time."
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, text)
        finally:
            self._waiting.pop(timeout, None)
        if message is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The call has no message.")
        return message
