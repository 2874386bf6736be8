"""Versions are loaded, unloaded and reloaded, and no request fails meanwhile."""

import logging
import os
import shutil
import threading
import time

import httpx
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import model_management_pb2, prediction_log_pb2

from jem_tf.saved_model import layout
from jem_tf.server.manager import Manager
from jem_tf.server.model_config import single_model_config
from jem_tf.server.protos import ModelServerConfig

from . import models
from .grpc_requests import ones, predict_request, rpc_error
from .servers import wait_until

FAST = {"file_system_poll_wait_seconds": 0.05, "load_retry_interval_micros": 100_000}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A SavedModel with two signatures, which loads faster than all of `rules`."""
    base = tmp_path_factory.mktemp("small")
    models.write_rules(base, names=("serving_default", "picky"))
    return base / "1"


@pytest.fixture
def base(small, tmp_path):
    """A model directory with version 1."""
    add_version(small, tmp_path / "m", 1)
    return tmp_path / "m"


def add_version(saved_model, base, version):
    """Copy under another name, then rename, as an exporter should."""
    temporary = base / f".writing-{version}"
    shutil.copytree(saved_model, temporary)
    temporary.rename(base / str(version))


def states(client, name="m"):
    rows = client.rest.get(f"/v1/models/{name}").json().get("model_version_status", [])
    return {int(row["version"]): row["state"] for row in rows}


def num_threads():
    """Return the number of threads of this process; 0 where there is no /proc."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0


class LoadThreads:
    """12 clients over gRPC and 4 over REST that send one request after the other."""

    def __init__(self, client):
        self.client, self.stop = client, threading.Event()
        self.failures, self.answers = [], []
        targets = [self._use_grpc] * 12 + [self._use_rest] * 4
        self.threads = [threading.Thread(target=target) for target in targets]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def _use_grpc(self):
        while not self.stop.is_set():
            start = time.monotonic()
            try:
                request = predict_request(name="m", x=ones(1, 2))
                response = self.client.predictions.Predict(request)
                version = response.model_spec.version.value
                self.answers.append((start, time.monotonic(), version))
                assert list(response.outputs["y"].float_val) == [3.0]
            except Exception as error:
                self.failures.append(error)

    def _use_rest(self):
        with httpx.Client(base_url=self.client.rest.base_url, timeout=60.0) as rest:
            while not self.stop.is_set():
                try:
                    response = rest.post("/v1/models/m:predict", json={"instances": [[1.0, 1.0]]})
                    assert response.status_code == 200, response.text
                except Exception as error:
                    self.failures.append(error)


@pytest.mark.parametrize("swaps", [3, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_request_fails_while_versions_are_swapped(swaps, small, serve, base):
    """Each answer is from a version that was available at that time."""
    client = serve(model_name="m", model_base_path=str(base), enable_batching=True, **FAST)
    lifetimes = {1: [time.monotonic(), None]}  # version: before it is available, after it ended
    threads_before = num_threads()
    with LoadThreads(client) as load:
        for version in range(2, 2 + swaps):
            before = time.monotonic()
            add_version(small, base, version)
            # The 16 clients leave little of the CPU for loading the next version.
            wait_until(lambda v=version: states(client).get(v) == "AVAILABLE", seconds=120.0)
            lifetimes[version] = [before, None]
            wait_until(lambda v=version: states(client).get(v - 1) == "END")
            lifetimes[version - 1][1] = time.monotonic()
            wait_until(lambda v=version: load.answers[-1][2] == v)
        wait_until(lambda: len(load.answers) > 10 * swaps)
    assert not load.failures, load.failures[:3]
    if threads_before:  # unloaded versions leave no threads behind
        assert num_threads() < threads_before + 80
    assert len({version for *_, version in load.answers}) == swaps + 1
    for start, end, version in load.answers:
        first, last = lifetimes[version]
        assert end >= first and (last is None or start <= last)


def test_a_corrupt_version_is_reported_and_the_good_one_stays(small, serve, base):
    client = serve(model_name="m", model_base_path=str(base), max_num_load_retries=1, **FAST)
    for version, content in ((2, b"no proto"), (3, b"")):
        shutil.copytree(small, base / f".{version}")
        (base / f".{version}" / "saved_model.pb").write_bytes(content)
        (base / f".{version}").rename(base / str(version))
    wait_until(lambda: states(client).get(3) == "END")
    rows = client.rest.get("/v1/models/m").json()["model_version_status"]
    failed = next(row for row in rows if row["version"] == "3")
    assert failed["status"]["error_code"] != "OK" and failed["status"]["error_message"]
    response = client.predictions.Predict(predict_request(name="m", x=ones(1, 2)))
    assert response.model_spec.version.value == 1
    add_version(small, base, 4)  # a good version that is added later is loaded
    wait_until(lambda: states(client).get(4) == "AVAILABLE" and states(client).get(1) == "END")
    shutil.rmtree(base / "3")
    shutil.rmtree(base / "4")
    time.sleep(0.3)  # several polls
    add_version(small, base, 3)  # the same number, repaired
    wait_until(lambda: states(client).get(3) == "AVAILABLE")


def test_a_failing_warmup_request_keeps_a_version_from_serving(serve, base):
    record = prediction_log_pb2.PredictionLog()
    record.predict_log.request.CopyFrom(predict_request("picky", x=-ones(1)))
    file = base / "1" / layout.WARMUP
    file.parent.mkdir()
    with tf.io.TFRecordWriter(str(file)) as writer:
        writer.write(record.SerializeToString())
    client = serve(model_name="m", model_base_path=str(base), max_num_load_retries=0, **FAST)
    (row,) = client.rest.get("/v1/models/m").json()["model_version_status"]
    assert row["state"] == "END" and "x is negative" in row["status"]["error_message"]
    assert client.rest.get("/health").status_code == 503
    cold = serve(model_name="m", model_base_path=str(base), enable_model_warmup=False, **FAST)
    assert states(cold) == {1: "AVAILABLE"}


def parse_config(text):
    return text_format.Parse(text, ModelServerConfig())


def reload_request(text):
    return model_management_pb2.ReloadConfigRequest(config=parse_config(text))


def config_list(*configs):
    return "model_config_list { " + " ".join(f"config {{ {c} }}" for c in configs) + " }"


def model(name, base_path):
    return f'name: "{name}" base_path: "{base_path}" model_platform: "tensorflow"'


def test_policies_labels_and_reloading(small, serve, base, tmp_path):
    for version in (2, 3):
        add_version(small, base, version)
    file = tmp_path / "models.config"
    two_versions = "model_version_policy { latest { num_versions: 2 } }"
    file.write_text(config_list(f"{model('m', base)} {two_versions}"))
    client = serve(model_config_file=str(file), **FAST)
    assert states(client) == {2: "AVAILABLE", 3: "AVAILABLE"}
    reload = client.models.HandleReloadConfigRequest
    specific = "model_version_policy { specific { versions: 1 versions: 3 } }"
    config = f"{model('m', base)} {specific}"
    reload(reload_request(config_list(config)))
    wait_until(lambda: states(client) == {1: "AVAILABLE", 2: "END", 3: "AVAILABLE"})
    labels = 'version_labels { key: "stable" value: 1 } version_labels { key: "new" value: 3 }'
    reload(reload_request(config_list(f"{config} {labels}")))
    for label, version in (("stable", 1), ("new", 3)):
        response = client.predictions.Predict(predict_request(name="m", label=label, x=ones(1, 2)))
        assert response.model_spec.version.value == version
        metadata = client.rest.get(f"/v1/models/m/labels/{label}/metadata").json()
        assert metadata["model_spec"]["version"] == str(version)
    wrong = 'version_labels { key: "stable" value: 2 }'
    code, text = rpc_error(reload, reload_request(config_list(f"{config} {wrong}")))
    assert code == "FAILED_PRECONDITION" and "not currently available" in text
    all_versions = "model_version_policy { all {} }"
    other = model("other", small.parent)
    reload(reload_request(config_list(f"{model('m', base)} {all_versions}", other)))
    wait_until(lambda: set(states(client).values()) == {"AVAILABLE"})
    assert states(client, "other") == {1: "AVAILABLE"}
    reload(reload_request(config_list(other)))
    assert client.rest.post("/v1/models/m:predict", content="{}").status_code == 404
    for text in (config_list(other, other), config_list('name: "m"'), "custom_model_config {}"):
        assert rpc_error(reload, reload_request(text))[0] == "INVALID_ARGUMENT"
    missing = config_list(other, model("missing", tmp_path / "missing"))
    assert rpc_error(reload, reload_request(missing))[0] == "UNKNOWN"


def test_the_configuration_file_is_polled(small, serve, tmp_path, caplog):
    file = tmp_path / "models.config"
    file.write_text(config_list(model("one", small.parent)))
    client = serve(model_config_file=str(file), model_config_file_poll_wait_seconds=0.1)
    file.write_text("nonsense")  # is reported, and changes nothing
    wait_until(lambda: "the configuration file was not applied" in caplog.text)
    assert states(client, "one") == {1: "AVAILABLE"}
    file.write_text(config_list(model("one", small.parent), model("two", small.parent)))
    wait_until(lambda: states(client, "two") == {1: "AVAILABLE"})


def test_only_directories_with_version_numbers_are_loaded(tmp_path):
    for name in ("1", "002", ".writing-3", "4.tmp", "five", "99999999999999999999"):
        (tmp_path / name).mkdir()
    (tmp_path / "6").write_text("a file")
    config = single_model_config("m", str(tmp_path))
    config.model_config_list.config[0].model_version_policy.all.SetInParent()
    loaded = []
    manager = Manager(config, lambda name, version, path: loaded.append(version), poll_seconds=0)
    manager.start()
    assert sorted(loaded) == [1, 2]


def test_a_directory_that_cannot_be_read_is_logged_and_nothing_is_served(tmp_path, caplog):
    missing = str(tmp_path / "missing")
    manager = Manager(single_model_config("m", missing), load=None, poll_seconds=0)
    with caplog.at_level(logging.WARNING, "jem_tf.server"):
        manager.start()
    assert f"{missing} cannot be read" in caplog.text
    assert not manager.ready and manager.servables() == []
