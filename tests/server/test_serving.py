"""A server as a process: health, signals, ports and usage errors."""

import json
import signal
import subprocess
import threading
import time

import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from jem_tf.server import Options
from jem_tf.server.serving import ModelServer
from jem_tf_cli import main

from .servers import command, free_ports


def test_health(plain):
    check = health_pb2_grpc.HealthStub(plain.channel).Check
    service = "tensorflow.serving.PredictionService"
    serving = health_pb2.HealthCheckResponse.SERVING
    assert check(health_pb2.HealthCheckRequest(service=service)).status == serving
    assert plain.rest.get("/health").json() == {"ready": True}


@pytest.fixture
def start_process(rules):
    """A function that starts `jem-tf serve` as a process."""
    processes = []

    def start(ports, *flags):
        words = ["serve", rules, f"--port={ports[0]}", f"--rest_api_port={ports[1]}", *flags]
        process = subprocess.Popen(
            command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
        line = process.stdout.readline()
        assert f"Serving rules: gRPC at 127.0.0.1:{ports[0]}" in line
        assert f"inspector at http://127.0.0.1:{ports[1]}/" in line
        return process

    yield start
    for process in processes:
        process.kill()


def test_a_killed_server_restarts_and_sigterm_lets_requests_finish(start_process):
    ports = free_ports(2)
    start_process(ports).send_signal(signal.SIGKILL)
    process = start_process(ports, "--enable_batching=true", "--num_load_threads=2")
    url = f"http://127.0.0.1:{ports[1]}/v1/models/rules"
    body = {"signature_name": "slow", "inputs": {"x": [1.0], "loops": [2000]}}
    responses = []
    thread = threading.Thread(
        target=lambda: responses.append(httpx.post(f"{url}:predict", json=body, timeout=60.0))
    )
    thread.start()
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    thread.join()
    assert responses[0].json() == {"outputs": [1.0]}
    assert process.wait(timeout=30) == 0
    errors = process.stderr.read()
    assert "--num_load_threads has no effect here" in errors
    lines = [line for line in errors.splitlines() if line.startswith("{")]
    assert any("is available after" in json.loads(line)["message"] for line in lines)
    with pytest.raises(httpx.TransportError):
        httpx.get(url)


def test_usage_errors_are_reported_before_anything_is_loaded(capsys, tmp_path, rules):
    assert main(["serve", str(tmp_path / "no")]) == 2
    assert "There is no directory" in capsys.readouterr().err
    assert main(["serve"]) == 2
    assert "There is nothing to serve" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["serve", str(rules), "--enable-batching", "maybe"])
    assert "must be true or false. Received: 'maybe'" in capsys.readouterr().err


def test_an_error_names_the_port_that_is_taken(rules, plain):
    taken = plain.server.options
    for options in ({"port": taken.port}, {"rest_api_port": taken.rest_api_port, "port": 0}):
        (number,) = (v for v in options.values() if v)
        with pytest.raises(OSError, match=f"127.0.0.1:{number}"):
            ModelServer(Options(model_base_path=str(rules), **{"rest_api_port": 0, **options}))
