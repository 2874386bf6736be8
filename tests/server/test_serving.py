"""A server as a process: health, signals, ports and usage errors."""

import json
import signal
import socket
import subprocess
import threading
import time

import grpc
import httpx
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

from jem_tf.client import JEMClient
from jem_tf.server import Options
from jem_tf.server.serving import ModelServer
from jem_tf_cli import main

from .grpc_requests import ones, predict_request
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


@pytest.mark.slow
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


def test_requests_that_exceed_the_drain_time_leave_no_traceback(rules, caplog):
    port, rest = free_ports(2)
    options = Options("rules", str(rules), port=port, rest_api_port=rest, drain_seconds=1.0)
    body = {"signature_name": "slow", "inputs": {"x": [1.0], "loops": [6000]}}
    url, responses = f"http://127.0.0.1:{rest}/v1/models/rules:predict", []
    thread = threading.Thread(
        target=lambda: responses.append(httpx.post(url, json=body, timeout=60.0))
    )
    with ModelServer(options):
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        request = predict_request("slow", x=ones(1), loops=np.array([6000]))
        call = PredictionServiceStub(channel).Predict.future(request)
        thread.start()
        time.sleep(0.5)
    thread.join()
    assert responses[0].status_code == 503 and call.code().name in ("UNAVAILABLE", "CANCELLED")
    assert not [record for record in caplog.records if record.exc_info]


def test_health_without_a_model(serve, tmp_path):
    (tmp_path / "empty").mkdir()
    missing = serve(model_name="empty", model_base_path=str(tmp_path / "empty"))
    file = tmp_path / "models.config"
    file.write_text("model_config_list {}")
    for client in (missing, serve(model_config_file=str(file))):
        check = health_pb2_grpc.HealthStub(client.channel).Check
        not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
        assert check(health_pb2.HealthCheckRequest()).status == not_serving
        response = client.rest.get("/health")
        assert response.status_code == 503 and response.json() == {"ready": False}


def test_health_follows_the_model(serve, rules, tmp_path):
    base = tmp_path / "model"
    base.mkdir()
    options = {"model_name": "rules", "model_base_path": str(base)}
    client = serve(**options, file_system_poll_wait_seconds=0.1)
    health = health_pb2_grpc.HealthStub(client.channel)
    changes = health.Watch(health_pb2.HealthCheckRequest(), timeout=30)
    assert next(changes).status == health_pb2.HealthCheckResponse.NOT_SERVING
    (base / "1").symlink_to(rules / "1")
    assert next(changes).status == health_pb2.HealthCheckResponse.SERVING
    assert client.rest.get("/health").status_code == 200


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_ipv6_addresses(host, rules):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    port, rest = free_ports(2)
    options = Options("rules", str(rules), host=host, port=port, rest_api_port=rest)
    with ModelServer(options) as server:
        assert f"gRPC at [::1]:{port}, REST at http://[::1]:{rest}/v1/models" in server.address()
        for address in (f"[::1]:{port}", f"http://[::1]:{rest}"):
            with JEMClient(address, "rules") as client:
                assert client.status() == {1: "AVAILABLE"}


def test_ports_are_checked(capsys, rules):
    for flags in (["--port", "99999"], ["--port", "0", "--rest-api-port", "-1"]):
        assert main(["serve", str(rules), *flags]) == 2
        assert f"between 0 and 65535. Received: {flags[-1]}" in capsys.readouterr().err


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
