"""The gateway passes everything on, and counts verdicts; `jem-tf load` tells what clients see."""

import gzip
import http.client
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
import tensorflow as tf

from jem_tf import cli
from jem_tf.client import JEMClient, ServingError
from jem_tf.client.load_generator import load
from jem_tf.server.configuration import METRICS_PATH

from .asking import ones, predict_request, refused
from .conftest import clients, free_ports


def write_judge(base):
    """A model that calls every negative input out of distribution."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, "inputs")])
    def judge(inputs):
        return {"is_ood": tf.reduce_min(inputs, 1) < 0, "sum": tf.reduce_sum(inputs, 1)}

    module = tf.Module()
    module.judge = judge
    signatures = {"serving_default": judge, "again": judge}
    tf.saved_model.save(module, str(base / "1"), signatures=signatures)


@pytest.fixture(scope="module")
def upstream(serve, tmp_path_factory):
    base = tmp_path_factory.mktemp("judge")
    write_judge(base)
    return serve(model_name="judge", model_base_path=str(base))


class Process:
    """`jem-tf gateway` before a server at these ports."""

    def __init__(self, grpc_port, rest_port):
        port, rest = free_ports(2)
        command = [sys.executable, "-m", "jem_tf", "gateway", f"--port={port}"]
        command += [f"--rest-api-port={rest}", f"--upstream=127.0.0.1:{grpc_port}"]
        command += [f"--upstream-rest=127.0.0.1:{rest_port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert "Passing" in self.process.stdout.readline()
        self.addresses = [f"127.0.0.1:{port}", f"http://127.0.0.1:{rest}"]
        self.clients = clients(f"127.0.0.1:{port}", f"127.0.0.1:{rest}")
        self.rest, self.predictions = self.clients.rest, self.clients.predictions
        deadline = time.monotonic() + 60
        while True:
            try:
                self.rest.get(METRICS_PATH)
                return
            except httpx.TransportError:
                assert self.process.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)

    def end(self):
        """Asked to, it ends by itself."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(40)


@pytest.fixture(scope="module")
def gateway(upstream):
    options = upstream.server.options
    process = Process(options.port, options.rest_api_port)
    yield process
    process.end()


def counts(gateway):
    """Rows judged, and those out of distribution, by signature."""
    page = gateway.rest.get(METRICS_PATH).text
    found = re.findall(r'jem_tf:(\w+)\{model_name="judge",signature_name="(\w+)"\} (\S+)', page)
    return {(name, signature): float(value) for name, signature, value in found}


@pytest.mark.parametrize("transport", [0, 1])
def test_answers_pass_and_verdicts_are_counted(gateway, transport):
    before = counts(gateway)
    x = np.array([[1, 2], [-1, 2], [3, 4], [5, -6], [7, 8]], np.float32)
    with JEMClient(gateway.addresses[transport], "judge") as client:
        found = client.call("again", inputs=x)
    np.testing.assert_allclose(found["sum"], x.sum(1))
    after = counts(gateway)
    for name, rows in (("scored_rows", 5), ("ood_rows", 2)):
        assert after[name, "again"] - before.get((name, "again"), 0) == rows
    assert after["ood_rate", "again"] == pytest.approx(0.4)


def test_rows_in_rest_and_the_default_signature(gateway):
    answer = gateway.rest.post("/v1/models/judge:predict", json={"instances": [[1, -1], [1, 1]]})
    assert [row["is_ood"] for row in answer.json()["predictions"]] == [True, False]
    assert counts(gateway)["ood_rows", "serving_default"] == 1


def test_errors_are_those_of_the_server(gateway, upstream):
    for request in (predict_request(name="nobody", x=ones(1)), predict_request(name="judge")):
        theirs = refused(upstream.predictions.Predict, request)
        assert refused(gateway.predictions.Predict, request) == theirs
    for path, body in (("judge", b"{"), ("nobody", b"{}"), ("judge/versions/9", b"{}")):
        here, there = (
            one.rest.post(f"/v1/models/{path}:predict", content=body) for one in (gateway, upstream)
        )
        assert (here.status_code, here.content) == (there.status_code, there.content)
    assert gateway.rest.get("/v1/models/judge").json() == (
        upstream.rest.get("/v1/models/judge").json()
    )


def test_nobody_behind_it():
    process = Process(*free_ports(2))
    try:
        client = JEMClient(process.addresses[0], "judge", retries=0)
        with pytest.raises(ServingError, match="UNAVAILABLE"):
            client.predict(ones(1, 2))
        answer = process.rest.get("/v1/models/judge")
        assert answer.status_code == 503 and "does not answer" in answer.json()["error"]
    finally:
        process.process.kill()


def test_zipped_requests_count_and_first_keys_win(gateway):
    """A request cannot make up names of signatures that were never answered."""
    url = "/v1/models/judge:predict"
    before = counts(gateway).get(("scored_rows", "again"), 0)
    body = b'{"signature_name": "again", "instances": [[1, 1]], "signature_name": "made up"}'
    zipped = gzip.compress(b'{"signature_name": "again", "instances": [[1, 1]]}')
    answer = gateway.rest.post(url, content=zipped, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 200 and counts(gateway)["scored_rows", "again"] == before + 1
    gateway.rest.post(url, content=body)
    assert "made up" not in gateway.rest.get(METRICS_PATH).text


@pytest.mark.parametrize("end", ["gateway", "upstream"])
def test_idle_connections_outlive_those_of_clients(end, request):
    """httpx gives up idle connections after 5 s; a server that does so too may be the first."""
    url = request.getfixturevalue(end).rest.base_url
    connection = http.client.HTTPConnection(url.host, url.port, timeout=30)
    connection.connect()
    connection.auto_open = False  # it would connect anew, and say nothing
    for pause in (6, 0):
        connection.request("GET", "/v1/models/judge")
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read()
        time.sleep(pause)


def test_heads_and_headers(gateway, upstream):
    here, there = (one.rest.head("/v1/models/judge") for one in (gateway, upstream))
    assert here.status_code == there.status_code
    for name in ("date", "server", "content-type"):
        assert len(gateway.rest.get("/v1/models/judge").headers.get_list(name)) == 1


def test_a_client_that_leaves_sends_nothing_on(gateway, upstream):
    def failed():
        page = upstream.rest.get(METRICS_PATH).text
        return re.findall(r"request_count\{.*INVALID_ARGUMENT.*", page)

    before, (host, port) = failed(), gateway.addresses[1].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = b"POST /v1/models/judge:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
        connection.sendall(head + b'{"inst')
        time.sleep(0.2)
    time.sleep(0.5)
    assert failed() == before


def test_sigterm_lets_requests_end(serve, rules):
    """One that is under way is answered, though the signal came before."""
    options = serve(model_name="rules", model_base_path=str(rules)).server.options
    process = Process(options.port, options.rest_api_port)
    body = {"signature_name": "slow", "inputs": {"x": [1.0], "loops": [1500]}}
    with ThreadPoolExecutor() as pool:
        begin = time.monotonic()
        late = pool.submit(process.rest.post, "/v1/models/rules:predict", json=body)
        time.sleep(0.3)
        assert not late.done(), "the request was too fast for this test"
        process.end()
        assert late.result().status_code == 200 and time.monotonic() - begin < 30


@pytest.mark.parametrize("transport", [0, 1])
def test_load_counts_answers(gateway, transport):
    found = load(gateway.addresses[transport], "judge", clients=4, seconds=0.5)
    assert found.latencies and not found.failures
    assert 0 < found.milliseconds(0.5) <= found.milliseconds(0.99) < 5e3


def test_load_counts_refusals(serve, rules, capsys):
    """`picky` refuses negative values, and some of eight made-up ones are."""
    served = serve(model_name="rules", model_base_path=str(rules)).server.options
    for address, code in (
        (f"127.0.0.1:{served.port}", "INVALID_ARGUMENT"),
        (f"http://127.0.0.1:{served.rest_api_port}", "HTTP 400"),
    ):
        found = load(address, "rules", "picky", clients=2, seconds=0.3, rows=8)
        assert found.failures.keys() == {code} and not found.latencies
    flags = ["--model", "rules", "--address", address, "--seconds", "0.2", "--rows", "8"]
    assert cli.main(["load", *flags, "--signature", "picky"]) == 2
    assert "HTTP 400" in capsys.readouterr().err


def test_the_command_prints_rates_and_names_mistakes(gateway, capsys):
    flags = ["--model", "judge", "--address", gateway.addresses[0], "--seconds", "0.3"]
    assert cli.main(["load", *flags, "--clients", "1", "2"]) == 0
    assert len(re.findall(r"\d clients: \d+ requests/s, p50", capsys.readouterr().out)) == 2
    assert cli.main(["load", *flags, "--signature", "none"]) == 2
    assert "again, serving_default. Received: 'none'" in capsys.readouterr().err
