"""Attacks of full size on a server process: memory, answers to others, and recovery.

The same limits at a smaller scale are tested in `test_expansion.py`, `test_json_documents.py`,
`test_silent_calls.py`, `test_slow_clients.py` and `test_deadlines.py`.
"""

import gzip
import socket
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import httpx
import numpy as np
import psutil
import pytest
from image_files import png

from jem_tf_cli import main

from .grpc_requests import ones, predict_request
from .servers import command, connect, free_ports, model_config
from .test_expansion import claim_rows, encode_varint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]
MAX_GROWTH, MAX_MEDIAN = 500, 1.0  # MB, seconds
PREDICT = "/tensorflow.serving.PredictionService/Predict"


class Target:
    """A server process of the models `rules` and `small`, and connections to it."""

    def __init__(self, config):
        self.ports = free_ports(2)
        flags = [f"--model-config-file={config}", f"--port={self.ports[0]}"]
        words = ["serve", *flags, f"--rest-api-port={self.ports[1]}", "--enable-batching"]
        self.process = subprocess.Popen(
            command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert "Serving" in self.process.stdout.readline()
        self.url = f"http://127.0.0.1:{self.ports[1]}/v1/models/rules:predict"
        self.connections = connect(*(f"127.0.0.1:{port}" for port in self.ports))
        self.answer()

    def answer(self):
        """Return how long a new REST connection and a gRPC call take."""
        start = time.monotonic()
        response = httpx.post(self.url, json={"instances": [[1.0, 1.0]]}, timeout=30.0)
        assert response.json() == {"predictions": [{"y": [3.0], "version": 1}]}
        request = predict_request(x=ones(1, 2))
        assert self.connections.predictions.Predict(request, timeout=30).outputs["version"]
        return (time.monotonic() - start) / 2

    def withstand(self, attack, count=8):
        """Run `count` attacks at once; return what they return. Others are answered meanwhile."""
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as file:
            file.write("5")  # resets the peak
        idle = self._status("VmRSS")
        with ThreadPoolExecutor(count) as threads:
            attacks = [threads.submit(attack) for _ in range(count)]
            seconds = [self.answer() for _ in range(5)]
            while not all(a.done() for a in attacks):
                seconds.append(self.answer())
        growth, median = self._status("VmHWM") - idle, statistics.median(seconds)
        print(
            f"\n{growth:.0f} MB more, others answered in {median:.3f} s, at most {max(seconds):.2f}"
        )
        assert growth < MAX_GROWTH
        assert median < MAX_MEDIAN
        assert statistics.median(self.answer() for _ in range(5)) < MAX_MEDIAN  # it recovers
        return [a.result() for a in attacks]

    def _status(self, field):
        with open(f"/proc/{self.process.pid}/status") as file:
            (line,) = (line for line in file if line.startswith(field))
        return int(line.split()[1]) / 1024

    def post(self, content, **headers):
        return httpx.post(self.url, content=content, headers=headers, timeout=120.0).status_code

    def call(self, request):
        """Return the status of a request, or of the bytes of one."""
        channel = grpc.insecure_channel(
            f"127.0.0.1:{self.ports[0]}", [("grpc.max_send_message_length", -1)]
        )
        message = request if isinstance(request, bytes) else request.SerializeToString()
        with channel:
            return channel.unary_unary(PREDICT).future(message).code().name


@pytest.fixture(scope="module")
def target(rules, trained, tmp_path_factory):
    base = tmp_path_factory.mktemp("attacks")
    flags = ["--out", str(base / "small"), "--refine-steps", "2"]
    assert main(["export", str(trained), *flags]) == 0
    server = Target(model_config(base, rules=rules, small=base / "small"))
    yield server
    server.process.kill()
    assert "Traceback" not in server.process.stderr.read()


def test_strings_that_are_repeated(target):
    row = {"f": np.array([True]), "i": np.array([1], np.int32)}
    request = predict_request("echo", s=np.array([b"x" * 50_000], object), **row)
    claim_rows(request, "s", 200_000)
    assert set(target.withstand(lambda: target.call(request))) == {"INVALID_ARGUMENT"}


def test_rows_that_are_repeated(target):
    request = claim_rows(predict_request(x=ones(1, 2)), "x", 260_000)
    assert set(target.withstand(lambda: target.call(request))) == {"INVALID_ARGUMENT"}


def test_64_mb_of_empty_strings(target):
    content = b"\x08\x07" + b"\x42\x00" * (2**25 - 100)
    entry = b"\x0a\x01s\x12" + encode_varint(len(content)) + content
    message = b"\x0a\x07\x0a\x05rules\x12" + encode_varint(len(entry)) + entry
    assert set(target.withstand(lambda: target.call(message), 3)) == {"RESOURCE_EXHAUSTED"}


@pytest.mark.parametrize("item", [b"{},", b"[],", b"1,", b'"",', b"NaN,"])
@pytest.mark.parametrize("compressed", [False, True])
def test_64_mb_of_json(target, item, compressed):
    """Bodies that took longer than `SLOW_SECONDS`, on a busy machine, make room for others: 408."""
    body = b'{"instances": [' + item * (2**26 // len(item) - 10) + item[:-1] + b"]}"
    headers = {"content-encoding": "gzip"} if compressed else {}
    content = gzip.compress(body, 1) if compressed else body
    refusals = {429} if compressed else {408, 429}
    assert set(target.withstand(lambda: target.post(content, **headers))) <= refusals


def test_the_largest_json_that_is_accepted(target):
    body = b'{"inputs": [' + b"[0.5, 0.25]," * 4095 + b"[1, 1]]}"
    statuses = set(target.withstand(lambda: target.post(body + b" " * 20 * 2**20)))
    assert 200 in statuses and statuses <= {200, 429}


def test_calls_without_messages(target):
    end = threading.Event()
    silence = iter(lambda: end.wait(60.0) and None, None)
    channel = grpc.insecure_channel(f"127.0.0.1:{target.ports[0]}")
    methods = [PREDICT, "/grpc.health.v1.Health/Check"] * 150
    calls = [channel.stream_unary(method).future(silence) for method in methods]
    target.withstand(lambda: time.sleep(5), 1)
    assert not any(call.done() for call in calls)  # they were waiting all the time
    end.set()


@pytest.mark.parametrize(
    "head", [b"GET /v1/mod", b"GET / HTTP/1.1\r\nHost: localhost\r\nA", b"POST %s HTTP/1.1\r\n"]
)
def test_300_slow_clients(target, head):
    """Headers that do not end, and bodies of a byte a second."""
    is_body = head.startswith(b"POST")
    if is_body:
        head %= b"/v1/models/rules:predict"
        head += b"Host: localhost\r\nContent-Length: 1000\r\n\r\n"
    with ExitStack() as stack:
        address = ("127.0.0.1", target.ports[1])
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(300)]
        for client in clients:
            client.sendall(head)

        def drip():
            for _ in range(12):
                for client in clients:
                    try:
                        client.send(b" " if is_body else b"a")
                    except OSError:
                        continue
                time.sleep(1.0)

        target.withstand(drip, 1)
        if not is_body:
            time.sleep(1.0)
            connections = psutil.Process(target.process.pid).net_connections("tcp")
            open_ones = [c for c in connections if c.laddr.port == address[1] and c.raddr]
            assert len(open_ones) < 20  # the time for headers is over


def test_work_ends_after_the_deadline(target):
    def sample(rows, seconds):
        values = np.zeros(rows, np.int32)
        request = predict_request("sample", "small", labels=values, seeds=values)
        call = target.connections.predictions.Predict.future(request, timeout=seconds)
        return call.code().name

    assert sample(20_000, 60.0) == "INVALID_ARGUMENT"
    results = target.withstand(lambda: sample(256, 0.2), 2)
    assert set(results) <= {"DEADLINE_EXCEEDED", "OK"}
    time.sleep(3.0)
    assert psutil.Process(target.process.pid).cpu_percent(1.0) < 20.0


def test_the_largest_images_that_are_accepted(target):
    """Four files of 4096 x 4096 pixels in a request, 2 kB each."""
    files = np.array([png(4096, 4096)] * 4, object)
    request = predict_request("serving_default_bytes", "small", image_bytes=files)
    assert set(target.withstand(lambda: target.call(request))) <= {"OK", "RESOURCE_EXHAUSTED"}
