"""Requests in steps: no thread waits between them, and the deadline holds in each."""

import asyncio
import contextlib
import threading
from concurrent.futures import Future

import pytest

from jem_tf.server.errors import RequestError
from jem_tf.server.workers import Workers


def run(steps, seconds=10.0, in_thread=False):
    """Return what a request in `steps` answers."""

    async def request():
        workers = Workers(threads=2, max_requests=1, max_bytes=1000)
        return await workers.run_steps(workers.call(seconds), steps, in_thread)

    return asyncio.run(request())


@pytest.mark.parametrize("in_thread", [False, True])
def test_steps_get_the_results_of_functions_and_futures(in_thread):
    def steps():
        thread = yield threading.current_thread
        future = Future()
        threading.Timer(0.05, future.set_result, [2]).start()
        return thread.name, (yield future)

    name, number = run(steps(), in_thread=in_thread)
    assert name.startswith("requests") and number == 2


def test_errors_arrive_where_the_step_was_yielded():
    def steps():
        try:
            yield lambda: 1 / 0
        except ZeroDivisionError:
            return (yield lambda: "again")

    assert run(steps()) == "again"
    with pytest.raises(ZeroDivisionError):
        run(step for step in [lambda: 1 / 0])


def test_a_request_whose_deadline_passes_lets_go_of_what_it_holds():
    """It waits for a batch, which is answered later."""
    held, batch = [], Future()

    @contextlib.contextmanager
    def hold():
        held.append("model")
        try:
            yield
        except RequestError as error:
            held.append(error.code)
            raise
        finally:
            held.remove("model")

    def steps():
        with hold():
            yield batch

    with pytest.raises(RequestError, match="Deadline Exceeded"):
        run(steps(), seconds=0.05)
    assert held == ["model"]  # the batch may still use it
    batch.set_result("late")
    assert held == ["DEADLINE_EXCEEDED"]
