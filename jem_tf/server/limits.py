"""What one request may use: time until its deadline, and bytes of a budget that all requests share.

Not here: the threads that requests run in (`workers.py`).
"""

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from jem_tf.server.errors import RequestError

Bytes = bytes | bytearray
FREE_BYTES = 2**16  # of a request, beside the budget: small requests are answered under any load
_current: ContextVar["Call | None"] = ContextVar("call", default=None)


class Budget:
    """A number of bytes that requests share; thread-safe."""

    def __init__(self, size: int):
        self.size, self._used, self._lock = size, 0, threading.Lock()

    def take(self, size: int) -> bool:
        """Take `size` bytes; return False, and take nothing, if fewer are left."""
        with self._lock:
            if self._used + size > self.size:
                return False
            self._used += size
            return True

    def give_back(self, size: int) -> None:
        """Return bytes that were taken."""
        with self._lock:
            self._used -= size


class Call:
    """A request in progress: its deadline, and the bytes that it holds until `close`.

    ```python
    call = Call(budget, seconds=30.0)
    call.reserve(len(body), "The request body")
    call.run(answer, body)  # `check_deadline` and `reserve` in it refer to this call
    call.close()
    ```
    """

    def __init__(self, budget: Budget, seconds: float | None = None):
        self._budget, self._size, self._taken = budget, 0, 0
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return self._end is not None and time.monotonic() >= self._end

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline; None if there is none."""
        return None if self._end is None else self._end - time.monotonic()

    def cancel(self) -> None:
        """Make the deadline pass, for example because the client no longer waits."""
        self._end = 0.0

    def check_deadline(self) -> None:
        """Raise `RequestError` after the deadline."""
        if self.expired:
            raise RequestError("DEADLINE_EXCEEDED", "Deadline Exceeded")

    def reserve(self, size: int, what: str) -> None:
        """Hold `size` more bytes; raise `RequestError` if the budget has fewer left."""
        needed = max(self._size + size - FREE_BYTES - self._taken, 0)
        if not self._budget.take(needed):
            raise RequestError(
                "RESOURCE_EXHAUSTED",
                f"{what} needs {size} bytes of memory, and all requests together may use "
                f"{self._budget.size}. Send fewer rows at a time, or try again later.",
            )
        self._size += size
        self._taken += needed

    def close(self) -> None:
        """Give the bytes back."""
        self._budget.give_back(self._taken)
        self._size = self._taken = 0

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(*arguments)`, called before the deadline and on behalf of this call."""
        self.check_deadline()
        return self.on_behalf(function, *arguments)

    def on_behalf(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return `function(*arguments)`; `check_deadline` and `reserve` in it are of this call."""
        token = _current.set(self)
        try:
            return function(*arguments)
        finally:
            _current.reset(token)


def current() -> "Call | None":
    """Return the call that this code runs on behalf of."""
    return _current.get()


def check_deadline() -> None:
    """Raise `RequestError` after the deadline of the current call, if there is one."""
    if (call := _current.get()) is not None:
        call.check_deadline()


def reserve(size: int, what: str) -> None:
    """Hold `size` more bytes for the current call, if there is one."""
    if (call := _current.get()) is not None:
        call.reserve(size, what)
