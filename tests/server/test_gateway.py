"""The gateway forwards everything unchanged, and counts the verdicts."""

import gzip
import http.client
import re
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from jem_tf.client import JEMClient, ServingError
from jem_tf.client.load_generator import generate_load
from jem_tf.server import Options
from jem_tf.server.configuration import METRICS_PATH
from jem_tf.server.gateway import Gateway

from .grpc_requests import ones, predict_request, rpc_error
from .servers import command, connect, free_ports, wait_until

JUDGE = "/v1/models/judge:predict"


class RunningGateway:
    """A gateway in a thread of this process, and connections to it."""

    def __init__(self, upstream_port, upstream_rest_port, forward_reload=False, **options):
        upstream = (f"127.0.0.1:{upstream_port}", f"127.0.0.1:{upstream_rest_port}")
        port, rest_port = free_ports(2)
        ports = Options(port=port, rest_api_port=rest_port, **options)
        allowed = {"forward_reload": True} if forward_reload else {}  # otherwise the default
        self.gateway = Gateway(*upstream, ports, **allowed)
        self.thread = threading.Thread(target=self.gateway.run)
        self.thread.start()
        self.addresses = {
            "grpc": f"127.0.0.1:{port}",
            "rest": f"http://127.0.0.1:{rest_port}",
        }
        connections = connect(f"127.0.0.1:{port}", f"127.0.0.1:{rest_port}")
        self.rest, self.predictions = connections.rest, connections.predictions
        self.models, self.channel = connections.models, connections.channel
        wait_until(lambda: is_listening(self.rest))

    def stop(self):
        self.gateway.stop()
        self.thread.join()


def is_listening(rest):
    try:
        return rest.get(METRICS_PATH).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def gateway(plain):
    options = plain.server.options
    running = RunningGateway(options.port, options.rest_api_port)
    yield running
    running.stop()


def counts(gateway):
    """Return the counted rows by metric and signature."""
    page = gateway.rest.get(METRICS_PATH).text
    rows = re.findall(r'jem_tf:(\w+)\{model_name="judge",signature_name="(\w+)"\} (\S+)', page)
    return {(name, signature): float(value) for name, signature, value in rows}


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_answers_are_forwarded_and_verdicts_counted(gateway, transport):
    before = counts(gateway)
    x = np.array([[1, 2], [-1, 2], [3, 4], [5, -6], [7, 8]], np.float32)
    with JEMClient(gateway.addresses[transport], "judge") as client:
        outputs = client.call("again", inputs=x)
    np.testing.assert_allclose(outputs["sum"], x.sum(1))
    after = counts(gateway)
    for name, rows in (("scored_rows", 5), ("ood_rows", 2)):
        assert after[name, "again"] - before.get((name, "again"), 0) == rows
    assert after["ood_rate", "again"] == pytest.approx(0.4)


def test_rest_rows_and_the_default_signature_are_counted(gateway):
    response = gateway.rest.post(JUDGE, json={"instances": [[1, -1], [1, 1]]})
    assert [row["is_ood"] for row in response.json()["predictions"]] == [True, False]
    assert counts(gateway)["ood_rows", "serving_default"] == 1


def test_errors_are_those_of_the_server(gateway, plain):
    for request in (predict_request(name="nobody", x=ones(1)), predict_request(name="judge")):
        expected = rpc_error(plain.predictions.Predict, request)
        assert rpc_error(gateway.predictions.Predict, request) == expected
    for path, body in (("judge", b"{"), ("nobody", b"{}"), ("judge/versions/9", b"{}")):
        actual, expected = (
            client.rest.post(f"/v1/models/{path}:predict", content=body)
            for client in (gateway, plain)
        )
        assert (actual.status_code, actual.content) == (expected.status_code, expected.content)
    status = gateway.rest.get("/v1/models/judge").json()
    assert status == plain.rest.get("/v1/models/judge").json()


def test_an_upstream_that_does_not_answer():
    running = RunningGateway(*free_ports(2))
    try:
        client = JEMClient(running.addresses["grpc"], "judge", retries=0)
        with pytest.raises(ServingError, match="UNAVAILABLE"):
            client.predict(ones(1, 2))
        response = running.rest.get("/v1/models/judge")
        assert response.status_code == 503 and "does not answer" in response.json()["error"]
    finally:
        running.stop()


def test_compressed_requests_are_counted(gateway):
    before = counts(gateway).get(("scored_rows", "again"), 0)
    body = gzip.compress(b'{"signature_name": "again", "instances": [[1, 1]]}')
    response = gateway.rest.post(JUDGE, content=body, headers={"Content-Encoding": "gzip"})
    assert response.status_code == 200
    assert counts(gateway)["scored_rows", "again"] == before + 1


def test_a_duplicate_key_cannot_invent_a_signature(gateway):
    """TF Serving uses the first of two equal keys."""
    body = b'{"signature_name": "again", "instances": [[1, 1]], "signature_name": "made up"}'
    gateway.rest.post(JUDGE, content=body)
    assert "made up" not in gateway.rest.get(METRICS_PATH).text


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_concurrent_requests_are_forwarded(gateway, transport):
    result = generate_load(gateway.addresses[transport], "judge", clients=4, seconds=0.5)
    assert result.latencies and not result.failures


def test_idle_connections_stay_open_longer_than_clients_keep_them(gateway, plain):
    """httpx keeps idle connections for 5 s; the server must not be the first to close them."""
    connections = []
    for url in (gateway.rest.base_url, plain.rest.base_url):
        connection = http.client.HTTPConnection(url.host, url.port, timeout=30)
        connection.connect()
        connection.auto_open = False  # otherwise it would silently reconnect
        connections.append(connection)
    for pause in (6, 0):
        for connection in connections:
            connection.request("GET", "/v1/models/judge")
            response = connection.getresponse()
            assert response.status == 200 and response.read()
        time.sleep(pause)


def test_head_requests_and_single_headers(gateway, plain):
    actual, expected = (client.rest.head("/v1/models/judge") for client in (gateway, plain))
    assert actual.status_code == expected.status_code
    for name in ("date", "server", "content-type"):
        assert len(gateway.rest.get("/v1/models/judge").headers.get_list(name)) == 1


def test_a_request_whose_client_disconnects_is_not_forwarded(gateway, plain):
    def failed_requests():
        page = plain.rest.get(METRICS_PATH).text
        return re.findall(r"request_count\{.*INVALID_ARGUMENT.*", page)

    before, url = failed_requests(), gateway.rest.base_url
    with socket.create_connection((url.host, url.port)) as connection:
        head = f"POST {JUDGE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n".encode()
        connection.sendall(head + b'{"inst')
        time.sleep(0.2)
    time.sleep(0.3)
    assert failed_requests() == before


@pytest.mark.slow
def test_sigterm_lets_requests_finish(plain):
    """`jem-tf gateway` as a process: a request in progress is answered after the signal."""
    options, (port, rest_port) = plain.server.options, free_ports(2)
    flags = [f"--port={port}", f"--rest-api-port={rest_port}"]
    flags += [f"--upstream=127.0.0.1:{options.port}"]
    flags += [f"--upstream-rest=127.0.0.1:{options.rest_api_port}"]
    process = subprocess.Popen(command("gateway", *flags), stdout=subprocess.PIPE, text=True)
    try:
        assert "Forwarding" in process.stdout.readline()
        rest = connect(f"127.0.0.1:{port}", f"127.0.0.1:{rest_port}").rest
        wait_until(lambda: is_listening(rest))
        body = {"signature_name": "slow", "inputs": {"x": [1.0], "loops": [1500]}}
        with ThreadPoolExecutor() as pool:
            start = time.monotonic()
            response = pool.submit(rest.post, "/v1/models/rules:predict", json=body)
            time.sleep(0.3)
            assert not response.done(), "the request was too fast for this test"
            process.send_signal(signal.SIGTERM)
            process.wait(40)
            assert response.result().status_code == 200 and time.monotonic() - start < 30
    finally:
        process.kill()
