"""Ten minutes of requests leave the memory of a server as it was."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import httpx
import numpy as np
import pytest

from jem_tf import cli
from jem_tf.client import JEMClient, ServingError

from .conftest import free_ports

pytestmark = pytest.mark.slow
SECONDS = float(os.environ.get("LOAD_SECONDS", "600"))


def resident(pid):
    """Megabytes of memory."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_flat_under_load(trained, tmp_path):
    """From the end of the first fifth on, by less than 5 %: allocators settle at first."""
    base = tmp_path / "small"
    flags = ["--out", str(base), "--sample-steps", "5", "--refine-steps", "2"]
    assert cli.main(["export", str(trained), *flags]) == 0
    port, rest = free_ports(2)
    process = subprocess.Popen(
        [sys.executable, "-m", "jem_tf", "serve", base, f"--port={port}", f"--rest-api-port={rest}"]
        + ["--enable-batching"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert "Serving" in process.stdout.readline()
    stop, failures, count = threading.Event(), [], itertools.count()
    rng = np.random.default_rng(0)

    def ask(address):
        with JEMClient(address, "small") as client:
            while not stop.is_set():
                rows = rng.uniform(-1, 1, (int(rng.integers(1, 20)), 4, 4, 1))
                try:
                    client.predict(rows)
                    client.ood_score(rows)
                    client.call("refine", inputs=rows.astype(np.float32))
                    next(count)
                except Exception as error:
                    failures.append(error)
                with contextlib.suppress(ServingError):
                    client.predict(rows[:, :2])  # mistakes should cost nothing either
                httpx.get(f"http://127.0.0.1:{rest}/monitoring/prometheus/metrics")

    addresses = [f"127.0.0.1:{port}"] * 4 + [f"http://127.0.0.1:{rest}"] * 4
    threads = [threading.Thread(target=ask, args=(address,)) for address in addresses]
    for thread in threads:
        thread.start()
    try:
        time.sleep(SECONDS / 5)
        settled = resident(process.pid)
        time.sleep(SECONDS * 4 / 5)
        final = resident(process.pid)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    print(f"\n{next(count)} rounds; {settled:.0f} MB after a fifth, {final:.0f} MB at the end")
    assert not failures, failures[:3]
    assert final < 1.05 * settled
