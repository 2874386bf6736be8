"""Versions come and go under load, and no request notices."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import httpx
import pytest
from google.protobuf import text_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import model_management_pb2

from jem_tf.server import manager

from .asking import ones, predict_request, refused
from .conftest import free_ports

FAST = {"file_system_poll_wait_seconds": 0.1, "load_retry_interval_micros": 100_000}


def copy(rules, base, version):
    """As a careful exporter does it: aside, then renamed."""
    aside = base / f".writing-{version}"
    shutil.copytree(rules / "1", aside)
    aside.rename(base / str(version))


def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def states(client, name="m"):
    rows = client.rest.get(f"/v1/models/{name}").json().get("model_version_status", [])
    return {int(row["version"]): row["state"] for row in rows}


@pytest.mark.parametrize("swaps", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_swaps_under_load_fail_no_request(swaps, rules, serve, tmp_path):
    """16 clients over gRPC and REST; each answer is of a version that was served at that time."""
    base = tmp_path / "m"
    base.mkdir()
    copy(rules, base, 1)
    client = serve(model_name="m", model_base_path=str(base), enable_batching=True, **FAST)
    stop, failures, answers = threading.Event(), [], []
    live = {1: [time.monotonic(), None]}  # version: seen available, not available any more

    def by_grpc():
        while not stop.is_set():
            begin = time.monotonic()
            try:
                response = client.predictions.Predict(predict_request(name="m", x=ones(1, 2)))
                answers.append((begin, time.monotonic(), response.model_spec.version.value))
                assert list(response.outputs["y"].float_val) == [3.0]
            except Exception as error:
                failures.append(error)

    def by_rest():
        with httpx.Client(base_url=client.rest.base_url, timeout=60.0) as rest:
            while not stop.is_set():
                try:
                    answer = rest.post("/v1/models/m:predict", json={"instances": [[1.0, 1.0]]})
                    assert answer.status_code == 200, answer.text
                except Exception as error:
                    failures.append(error)

    running = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
    threads = [threading.Thread(target=t) for t in [by_grpc] * 12 + [by_rest] * 4]
    for thread in threads:
        thread.start()
    try:
        for version in range(2, 2 + swaps):
            before = time.monotonic()
            copy(rules, base, version)
            # 16 clients that never rest leave little of two cores to who loads the next version.
            until(lambda v=version: states(client).get(v) == "AVAILABLE", seconds=120.0)
            live[version] = [before, None]
            until(lambda v=version: states(client).get(v - 1) == "END")
            live[version - 1][1] = time.monotonic()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[:3]
    if running:  # versions that have gone have taken their threads with them
        assert len(os.listdir("/proc/self/task")) < running + 80
    assert len({version for *_, version in answers}) == swaps + 1 and len(answers) > 10 * swaps
    for begin, end, version in answers:
        first, last = live[version]
        assert end >= first and (last is None or begin <= last)


def test_a_corrupt_version_is_reported_and_the_good_one_goes_on(rules, serve, tmp_path):
    base = tmp_path / "m"
    base.mkdir()
    copy(rules, base, 1)
    client = serve(model_name="m", model_base_path=str(base), max_num_load_retries=1, **FAST)
    for version, harm in ((2, b"no proto"), (3, b"")):
        shutil.copytree(rules / "1", base / f".{version}")
        (base / f".{version}" / "saved_model.pb").write_bytes(harm)
        (base / f".{version}").rename(base / str(version))
    until(lambda: states(client).get(3) == "END")
    rows = client.rest.get("/v1/models/m").json()["model_version_status"]
    failed = next(row for row in rows if row["version"] == "3")
    assert failed["status"]["error_code"] != "OK" and failed["status"]["error_message"]
    response = client.predictions.Predict(predict_request(name="m", x=ones(1, 2)))
    assert response.model_spec.version.value == 1
    copy(rules, base, 4)  # and a good one that comes later is taken
    until(lambda: states(client).get(4) == "AVAILABLE" and states(client).get(1) == "END")
    shutil.rmtree(base / "3")
    shutil.rmtree(base / "4")
    time.sleep(0.5)
    copy(rules, base, 3)  # the same number, mended
    until(lambda: states(client).get(3) == "AVAILABLE")


def test_a_failing_warm_up_record_keeps_a_version_out(rules, serve, tmp_path):
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    base = tmp_path / "m"
    base.mkdir()
    copy(rules, base, 1)
    (base / "1" / "assets.extra").mkdir()
    record = prediction_log_pb2.PredictionLog()
    record.predict_log.request.CopyFrom(predict_request("picky", x=-ones(1)))
    file = base / "1" / "assets.extra" / "tf_serving_warmup_requests"
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(record.SerializeToString())
    client = serve(model_name="m", model_base_path=str(base), max_num_load_retries=0, **FAST)
    (row,) = client.rest.get("/v1/models/m").json()["model_version_status"]
    assert row["state"] == "END" and "x is negative" in row["status"]["error_message"]
    assert client.rest.get("/health").status_code == 503
    cold = serve(model_name="m", model_base_path=str(base), enable_model_warmup=False, **FAST)
    assert states(cold) == {1: "AVAILABLE"}


def reload_request(text):
    request = model_management_pb2.ReloadConfigRequest()
    text_format.Parse(text, request.config)
    return request


def listed(*configs):
    return "model_config_list { " + " ".join(f"config {{ {c} }}" for c in configs) + " }"


def test_policies_labels_and_reloading(rules, serve, tmp_path):
    base = tmp_path / "m"
    base.mkdir()
    for version in (1, 2, 3):
        copy(rules, base, version)
    place = f'name: "m" base_path: "{base}" model_platform: "tensorflow"'
    file = tmp_path / "models.config"
    file.write_text(listed(place + " model_version_policy { latest { num_versions: 2 } }"))
    client = serve(model_config_file=str(file), **FAST)
    assert states(client) == {2: "AVAILABLE", 3: "AVAILABLE"}
    reload = client.models.HandleReloadConfigRequest
    policy = "model_version_policy { specific { versions: 1 versions: 3 } }"
    reload(reload_request(listed(f"{place} {policy}")))
    until(lambda: states(client) == {1: "AVAILABLE", 2: "END", 3: "AVAILABLE"})
    labels = 'version_labels { key: "stable" value: 1 } version_labels { key: "new" value: 3 }'
    reload(reload_request(listed(f"{place} {policy} {labels}")))
    for label, version in (("stable", 1), ("new", 3)):
        found = client.predictions.Predict(predict_request(name="m", label=label, x=ones(1, 2)))
        assert found.model_spec.version.value == version
        answer = client.rest.get(f"/v1/models/m/labels/{label}/metadata").json()
        assert answer["model_spec"]["version"] == str(version)
    wrong = 'version_labels { key: "stable" value: 2 }'
    code, text = refused(reload, reload_request(listed(f"{place} {policy} {wrong}")))
    assert code == "FAILED_PRECONDITION" and "not currently available" in text
    other = f'name: "other" base_path: "{rules}" model_platform: "tensorflow"'
    reload(reload_request(listed(f"{place} model_version_policy {{ all {{}} }}", other)))
    until(lambda: set(states(client).values()) == {"AVAILABLE"})
    assert states(client, "other") == {1: "AVAILABLE"}
    reload(reload_request(listed(other)))
    assert client.rest.post("/v1/models/m:predict", content="{}").status_code == 404
    for text in (listed(other, other), listed('name: "m"'), "custom_model_config {}"):
        assert refused(reload, reload_request(text))[0] == "INVALID_ARGUMENT"
    missing = f'name: "gone" base_path: "{tmp_path / "gone"}" model_platform: "tensorflow"'
    assert refused(reload, reload_request(listed(other, missing)))[0] == "UNKNOWN"


def test_the_configuration_file_is_followed(rules, serve, tmp_path):
    file = tmp_path / "models.config"
    config = f'base_path: "{rules}" model_platform: "tensorflow"'
    file.write_text(listed(f'name: "one" {config}'))
    client = serve(model_config_file=str(file), model_config_file_poll_wait_seconds=0.1)
    file.write_text("nonsense")  # is reported, and changes nothing
    time.sleep(0.3)
    assert states(client, "one") == {1: "AVAILABLE"}
    file.write_text(listed(f'name: "one" {config}', f'name: "two" {config}'))
    until(lambda: states(client, "two") == {1: "AVAILABLE"})


def test_health_and_reflection(rules, serve):
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    client = serve(model_name="m", model_base_path=str(rules))
    check = health_pb2_grpc.HealthStub(client.channel).Check
    service = "tensorflow.serving.PredictionService"
    serving = health_pb2.HealthCheckResponse.SERVING
    assert check(health_pb2.HealthCheckRequest(service=service)).status == serving
    assert service in ProtoReflectionDescriptorDatabase(client.channel).get_services()
    assert client.rest.get("/health").json() == {"ready": True}


def test_directories_that_are_no_versions_are_left_alone(tmp_path):
    for name in ("1", "002", ".writing-3", "4.tmp", "five", "99999999999999999999"):
        (tmp_path / name).mkdir()
    (tmp_path / "6").write_text("a file")
    assert set(manager.versions_below(tmp_path)) == {1, 2}
    assert manager.versions_below(tmp_path / "missing") == {}


@pytest.fixture
def command(rules):
    """Starts `jem-tf serve` as a process of its own; its REST address."""
    started = []

    def start(ports, *flags):
        words = ["serve", rules, f"--port={ports[0]}", f"--rest_api_port={ports[1]}", *flags]
        process = subprocess.Popen(
            [sys.executable, "-m", "jem_tf", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert "Serving rules: gRPC at 127.0.0.1" in process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()


def test_a_killed_server_serves_again_and_sigterm_lets_requests_end(command):
    ports = free_ports(2)
    command(ports).send_signal(signal.SIGKILL)
    process = command(ports, "--enable_batching=true", "--num_load_threads=2")
    url = f"http://127.0.0.1:{ports[1]}/v1/models/rules"
    body = {"signature_name": "slow", "inputs": {"x": [1.0], "loops": [2000]}}
    answers = []
    ask = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{url}:predict", json=body, timeout=60.0))
    )
    ask.start()
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    ask.join()
    assert answers[0].json() == {"outputs": [1.0]}
    assert process.wait(timeout=30) == 0
    errors = process.stderr.read()
    assert "--num_load_threads has no effect here" in errors
    lines = [line for line in errors.splitlines() if line.startswith("{")]
    assert any("is available after" in json.loads(line)["message"] for line in lines)
    with pytest.raises(httpx.TransportError):
        httpx.get(url)


def test_what_cannot_be_served_is_said_at_once(capsys, tmp_path, rules):
    from jem_tf import cli

    assert cli.main(["serve", str(tmp_path / "no")]) == 2
    assert "There is no directory" in capsys.readouterr().err
    assert cli.main(["serve"]) == 2
    assert "Say what to serve" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["serve", str(rules), "--enable-batching", "maybe"])
    assert "must be true or false. Received: 'maybe'" in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(rules, serve):
    client = serve(model_name="m", model_base_path=str(rules))
    from jem_tf.server import Options
    from jem_tf.server.serving import ModelServer

    taken = client.server.options
    for options in ({"port": taken.port}, {"rest_api_port": taken.rest_api_port, "port": 0}):
        (number,) = (v for v in options.values() if v)
        with pytest.raises(OSError, match=f"127.0.0.1:{number}"):
            ModelServer(Options(model_base_path=str(rules), **{"rest_api_port": 0, **options}))
