"""The gateway passes everything on, and counts verdicts; `jem-tf load` tells what clients see."""

import re
import signal
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest
import tensorflow as tf

from jem_tf import cli
from jem_tf.client import JEMClient, ServingError
from jem_tf.client.load import load
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


@pytest.fixture(scope="module")
def gateway(upstream):
    port, rest = free_ports(2)
    options = upstream.server.options
    command = [sys.executable, "-m", "jem_tf", "gateway", f"--port={port}"]
    command += [f"--rest-api-port={rest}", f"--upstream=127.0.0.1:{options.port}"]
    command += [f"--upstream-rest=127.0.0.1:{options.rest_api_port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    found = clients(f"127.0.0.1:{port}", f"127.0.0.1:{rest}")
    found.addresses = [f"127.0.0.1:{port}", f"http://127.0.0.1:{rest}"]
    deadline = time.monotonic() + 60
    while True:
        try:
            found.rest.get(METRICS_PATH)
            break
        except httpx.TransportError:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    yield found
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) in (0, -signal.SIGTERM)


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


def test_nobody_behind_it(gateway):
    port, rest, grpc_port, nowhere = free_ports(4)
    command = [sys.executable, "-m", "jem_tf", "gateway", f"--port={port}"]
    command += [f"--rest-api-port={rest}", f"--upstream=127.0.0.1:{grpc_port}"]
    process = subprocess.Popen([*command, f"--upstream-rest=127.0.0.1:{nowhere}"])
    try:
        client = JEMClient(f"127.0.0.1:{port}", "judge", timeout=8.0)
        with pytest.raises(ServingError, match="UNAVAILABLE"):
            client.predict(ones(1, 2))
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                answer = httpx.get(f"http://127.0.0.1:{rest}/v1/models/judge")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        assert answer.status_code == 503 and "does not answer" in answer.json()["error"]
    finally:
        process.kill()


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
