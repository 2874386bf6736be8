"""The memory of a server does not grow during ten minutes of requests."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from jem_tf.client import JEMClient, ServingError
from jem_tf_cli import main

from .servers import command, free_ports

pytestmark = pytest.mark.slow
SECONDS = float(os.environ.get("LOAD_SECONDS", "600"))


def resident_megabytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def send_requests(address, metrics_url, stop, failures):
    """Send valid and invalid requests until `stop` is set; return the number of rounds."""
    rng = np.random.default_rng()
    with JEMClient(address, "small") as client:
        for rounds in itertools.count():
            if stop.is_set():
                return rounds
            rows = rng.uniform(-1, 1, (int(rng.integers(1, 20)), 4, 4, 1))
            try:
                client.predict(rows)
                client.ood_score(rows)
                client.call("refine", inputs=rows.astype(np.float32))
            except Exception as error:
                failures.append(error)
            with contextlib.suppress(ServingError):
                client.predict(rows[:, :2])  # refused requests must not leak either
            httpx.get(metrics_url)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_flat_under_load(trained, tmp_path):
    """It grows by less than 5 % after the first fifth, in which allocators settle."""
    base = tmp_path / "small"
    flags = ["--out", str(base), "--sample-steps", "5", "--refine-steps", "2"]
    assert main(["export", str(trained), *flags]) == 0
    port, rest = free_ports(2)
    flags = [f"--port={port}", f"--rest-api-port={rest}", "--enable-batching"]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    process = subprocess.Popen(command("serve", base, *flags), **output)
    assert "Serving" in process.stdout.readline()
    stop, failures = threading.Event(), []
    metrics_url = f"http://127.0.0.1:{rest}/monitoring/prometheus/metrics"
    addresses = [f"127.0.0.1:{port}"] * 4 + [f"http://127.0.0.1:{rest}"] * 4
    with ThreadPoolExecutor(len(addresses)) as threads:
        clients = [
            threads.submit(send_requests, address, metrics_url, stop, failures)
            for address in addresses
        ]
        try:
            time.sleep(SECONDS / 5)
            settled = resident_megabytes(process.pid)
            time.sleep(SECONDS * 4 / 5)
            final = resident_megabytes(process.pid)
        finally:
            stop.set()
            rounds = sum(client.result() for client in clients)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
    print(f"\n{rounds} rounds; {settled:.0f} MB after a fifth, {final:.0f} MB at the end")
    assert not failures, failures[:3]
    assert final < 1.05 * settled
