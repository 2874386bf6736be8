"""What the exchange between workers costs: processes on one machine, as workers and independent.

    python benchmarks/scaling.py [--workers 1 2 4] [--steps 30] [--batch 16] [--json FILE]

Weak scaling: each worker has `batch` rows. On one machine workers also share the cores, which is
not a cost of the exchange. So the same number of processes train at the same time, once as workers
of one run and once independently. The difference is the cost of the exchange.
"""

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

SHAPE, NUM_CLASSES = (32, 32, 3), 10
WARMUP_STEPS = 5


def work(batch: int, steps: int) -> None:
    """Train in this process, and print the median seconds of a step."""
    import keras
    import numpy as np
    import tensorflow as tf

    import jem_tf
    from jem_tf import backbones
    from jem_tf._tf.distribution import choose_strategy

    strategy = choose_strategy("auto")
    workers = strategy.num_replicas_in_sync
    with strategy.scope():
        network = backbones.wide_resnet(SHAPE, NUM_CLASSES, depth=10, width=2)
        model = jem_tf.JEM(network, jem_tf.SGLD(5), jem_tf.ReplayBuffer(100), seed=0)
        model.compile(keras.optimizers.Adam(1e-4))
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (batch * workers, *SHAPE)).astype(np.float32)
    y = rng.integers(0, NUM_CLASSES, batch * workers)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(len(x)).repeat().with_options(options)
    times: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            times.append(time.perf_counter())

    model.fit(data, steps_per_epoch=WARMUP_STEPS + steps, verbose=0, callbacks=[Clock()])
    weights = sum(int(np.prod(w.shape)) for w in model.trainable_weights)
    seconds = float(np.median(np.diff(times[WARMUP_STEPS:])))
    print(json.dumps({"seconds": seconds, "weights": weights}))


def measure(workers: int, connected: bool, arguments: argparse.Namespace) -> dict[str, float]:
    """Return the result of the slowest of `workers` processes that train at the same time."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)]
    addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in sockets]
    for server in sockets:
        server.close()
    processes = []
    for index in range(workers):
        task = {"type": "worker", "index": index}
        environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
        if connected:
            cluster = {"worker": addresses}
            environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        flags = ["--batch", str(arguments.batch), "--steps", str(arguments.steps), "--work"]
        command = [sys.executable, __file__, *flags]
        processes.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        )
    results = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    return max(results, key=lambda result: result["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.batch, arguments.steps)
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores; WRN-10-2, batch {arguments.batch} each")
    rows = []
    for workers in arguments.workers:
        independent = measure(workers, False, arguments)
        result = measure(workers, True, arguments) if workers > 1 else independent
        before, after = independent["seconds"], result["seconds"]
        rows.append({"workers": workers, "independent": before, "as_workers": after})
        print(
            f"processes {workers}: {1e3 * before:.0f} ms per step independent, "
            f"{1e3 * after:.0f} ms as workers, exchange {1e3 * (after - before):.0f} ms "
            f"({100 * (after - before) / before:.0f} %); {result['weights']} weights",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
