"""Clients that send headers and bodies slowly, or not at all, and those that send too many."""

import socket
import time
from contextlib import ExitStack

import httpx
import pytest

from .servers import wait_until

STATUS, PREDICT = "/v1/models/rules", "/v1/models/rules:predict"
BODY_HEAD = (
    b"POST /v1/models/rules:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
)


@pytest.fixture(scope="module")
def strict(rules, shared_servers):
    """A server with short time limits, two slots, and few connections."""
    return shared_servers(
        model_name="rules",
        model_base_path=str(rules),
        max_concurrent_requests=2,
        max_connections_per_client=16,
        header_timeout_seconds=1.0,
        body_timeout_seconds=1.5,
        idle_timeout_seconds=2.0,
    )


@pytest.fixture
def connect(strict):
    """A function that opens a connection and sends bytes."""
    with ExitStack() as stack:

        def open_and_send(content):
            url = strict.rest.base_url
            connection = stack.enter_context(socket.create_connection((url.host, url.port), 10))
            connection.sendall(content)
            return connection

        yield open_and_send


def read_until_closed(connection):
    """Return what the server sends, and how long it keeps the connection open."""
    start, content = time.monotonic(), b""
    try:
        while chunk := connection.recv(2**16):
            content += chunk
    except ConnectionResetError:
        pass
    return content, time.monotonic() - start


def median_seconds(url, count=9):
    """Return the median time of new connections that send whole requests."""
    times = []
    for _ in range(count):
        start = time.monotonic()
        assert httpx.post(url, json={"instances": [[1.0, 2.0]]}).status_code == 200
        times.append(time.monotonic() - start)
    return sorted(times)[count // 2]


@pytest.mark.parametrize("content", [b"", b"GET /v1/mod", b"GET / HTTP/1.1\r\nHost: x\r\nA"])
def test_headers_must_arrive_in_time(connect, content):
    connection = connect(content)
    assert 0.5 < read_until_closed(connection)[1] < 3.0


def test_the_headers_of_a_second_request_must_arrive_in_time_too(connect):
    connection = connect(b"GET /v1/models/rules HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200 OK" in connection.recv(2**16)
    connection.sendall(b"GET /v1/")
    assert 0.5 < read_until_closed(connection)[1] < 2.5


def test_idle_connections_are_closed_later_than_slow_ones(connect):
    connection = connect(b"GET /v1/models/rules HTTP/1.1\r\nHost: localhost\r\n\r\n")
    content, seconds = read_until_closed(connection)
    assert b"200 OK" in content and 1.5 < seconds < 5.0


def test_bodies_must_arrive_in_time(connect):
    content, seconds = read_until_closed(connect(BODY_HEAD + b'{"inst'))
    assert b"408" in content and b"did not arrive in time" in content
    assert 1.0 < seconds < 5.0


def test_long_headers_are_refused(connect):
    connection = connect(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000)
    assert b"400" in connection.recv(2**10)


def test_slow_bodies_take_no_slots(strict, connect):
    for _ in range(10):
        connect(BODY_HEAD + b"{")
    assert median_seconds(f"{strict.rest.base_url}{PREDICT}") < 1.0


def test_clients_with_many_slow_connections_lose_the_oldest(strict, connect):
    slow = [connect(BODY_HEAD if i % 2 else b"GET /") for i in range(60)]
    assert median_seconds(f"{strict.rest.base_url}{PREDICT}") < 1.0
    content, seconds = read_until_closed(slow[0])
    assert content == b"" and seconds < 0.5
    wait_until(lambda: strict.rest.get(STATUS).status_code == 200, 5.0)


def test_the_response_arrives_although_the_body_does_not_end(connect):
    """A body that is refused is read for a while: otherwise the client sees a reset connection."""
    head = (
        b"POST /v1/models/rules:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    )
    connection = connect(head % 10**9 + b"x" * 200_000)
    time.sleep(0.3)
    connection.sendall(b"x" * 200_000)
    content, seconds = read_until_closed(connection)
    assert b"429" in content and seconds < 4.0
