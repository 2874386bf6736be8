"""The threads that answer requests, and how many requests are in progress.

Not here: reading requests from clients, for which no thread waits (`grpc_api.py`, `rest_api.py`).
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jem_tf.server.errors import RequestError
from jem_tf.server.limits import Budget, Call

Arriving = dict[asyncio.Timeout, float]  # requests whose bodies arrive, by their begin


class Workers:
    """Runs requests that have arrived completely, on behalf of one event loop.

    ```python
    workers = Workers(threads=64, max_requests=256, max_bytes=2**28)
    await workers.run(workers.call(seconds=30.0), answer, body)
    ```

    Args:
        threads: requests that run at a time.
        max_requests: requests that run or wait for a thread; further ones are refused.
        max_bytes: memory for the content of all requests.
    """

    def __init__(self, threads: int, max_requests: int, max_bytes: int):
        self._threads = ThreadPoolExecutor(threads, "requests")
        self._max_requests, self._num_in_progress = max_requests, 0
        self._budget = Budget(max_bytes)
        self.arriving: Arriving = {}

    def call(self, seconds: float | None) -> Call:
        """Return a new call with a deadline in `seconds`; None: no deadline."""
        return Call(self._budget, seconds)

    async def run(self, call: Call, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(*arguments)`, run in a thread until the deadline; close the call.

        Raise `RequestError` if there are too many requests, or after the deadline. Work that has
        begun then continues until it checks the deadline, and counts as in progress until it ends.
        """
        if self._num_in_progress >= self._max_requests:
            call.close()
            raise RequestError("RESOURCE_EXHAUSTED", "Too many concurrent requests.")
        self._num_in_progress += 1
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Any] = loop.create_future()

        def work() -> None:
            result, error = None, None
            try:
                result = call.run(function, *arguments)
            except BaseException as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(finish, result, error)

        def finish(result: Any, error: BaseException | None) -> None:
            self._num_in_progress -= 1
            call.close()
            if response.done():  # the client no longer waits
                return
            if error is None:
                response.set_result(result)
            else:
                response.set_exception(error)

        self._threads.submit(work)
        try:
            async with asyncio.timeout(call.remaining):
                return await response
        except TimeoutError as error:
            raise RequestError("DEADLINE_EXCEEDED", "Deadline Exceeded") from error
        finally:
            if response.cancelled():
                call.cancel()

    def shutdown(self) -> None:
        """Let threads end after what they do now."""
        self._threads.shutdown(wait=False, cancel_futures=True)
