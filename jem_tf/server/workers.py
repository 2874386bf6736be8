"""The threads that answer requests, and how many requests are in progress.

Not here: reading requests from clients, for which no thread waits (`grpc_api.py`, `rest_api.py`).
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from jem_tf.server.errors import RequestError
from jem_tf.server.limits import Budget, Call

# Yields functions to run in a thread, or futures; gets their results; returns a response.
Steps = Generator["Future[Any] | Callable[[], Any]", Any, Any]
Arriving = dict[asyncio.Timeout, float]  # requests whose bodies arrive, by their begin


class Workers:
    """Runs requests that have arrived completely, on behalf of one event loop.

    ```python
    workers = Workers(threads=64, max_requests=256, max_bytes=2**28)
    await workers.run(workers.call(seconds=30.0), answer, body)
    ```

    Args:
        threads: functions of requests that run at a time.
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
        """Return `function(*arguments)`, run in a thread; close the call.

        Work that has begun continues after the deadline until it checks it, and counts as in
        progress until it ends. Raises the errors of `run_steps`.
        """

        def steps() -> Steps:
            return (yield partial(function, *arguments))

        return await self.run_steps(call, steps(), in_thread=False)

    async def run_steps(self, call: Call, steps: Steps, in_thread: bool = True) -> Any:
        """Return what `steps` return; close the call.

        No thread waits between two steps. The first one runs here unless it is `in_thread`, and
        each later one where its future was completed.

        Raise `RequestError` if there are too many requests, or after the deadline.
        """
        if self._num_in_progress >= self._max_requests:
            call.close()
            raise RequestError(
                "RESOURCE_EXHAUSTED",
                f"Too many concurrent requests: at most {self._max_requests} run or wait.",
            )
        self._num_in_progress += 1
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Any] = loop.create_future()

        def advance(result: Any = None, error: BaseException | None = None) -> None:
            try:
                call.check_deadline()
            except RequestError as late:
                error = late
            try:
                resume, value = (steps.send, result) if error is None else (steps.throw, error)
                work = call.on_behalf(resume, value)
            except StopIteration as end:
                return done(end.value, None)
            except BaseException as error:
                return done(None, error)
            future = work if isinstance(work, Future) else self._threads.submit(call.run, work)
            future.add_done_callback(proceed)

        def proceed(future: "Future[Any]") -> None:
            error = asyncio.CancelledError() if future.cancelled() else future.exception()
            advance(future.result() if error is None else None, error)

        def done(result: Any, error: BaseException | None) -> None:
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

        if in_thread:
            self._threads.submit(advance)
        else:
            advance()
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
