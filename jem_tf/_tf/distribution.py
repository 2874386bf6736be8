"""On which devices and machines to train: a strategy by name, from TF_CONFIG.

Not here: what replicas exchange (`state.py`, `model.py`), how `fit` is led around Keras issue 20585
(`fitting.py`).
"""

import json
import os
import socket
import time
from typing import Any

import tensorflow as tf

from jem_tf.checks import check_known

STRATEGIES = ("auto", "mirrored", "multi-worker", "none")
LONGEST = 2**16  # bytes of settings that workers compare
TASKS = ("chief", "worker")  # whose processes train; chief, or worker 0, writes


def choose(name: str = "auto", timeout: float = 300.0) -> tf.distribute.Strategy:
    """The strategy `name`; "auto" takes all workers of TF_CONFIG, else all GPUs, else one device.

    Waits for the other workers for `timeout` seconds.
    """
    if spans_workers(name):
        _meet(_cluster() or {}, timeout)
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "mirrored" or (name == "auto" and len(tf.config.list_physical_devices("GPU")) > 1):
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def spans_workers(name: str) -> bool:
    """Whether the strategy `name` would take more than one process."""
    check_known("strategy", name, STRATEGIES)
    cluster = _cluster() if name in ("auto", "multi-worker") else None
    if name == "multi-worker" and cluster is None:
        raise ValueError("The strategy multi-worker needs TF_CONFIG with more than one worker.")
    return cluster is not None


def is_multi_worker(strategy: Any) -> bool:
    """Whether `strategy` spans more than one process."""
    return (
        isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        and strategy.cluster_resolver is not None
        and len(_tasks(strategy)) > 1
    )


def worker(strategy: Any) -> int:
    """The number of this process among those of `strategy`; the first one is the chief."""
    if not is_multi_worker(strategy):
        return 0
    resolver = strategy.cluster_resolver
    return _tasks(strategy).index((resolver.task_type, resolver.task_id))


def everyones(strategy: Any, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The settings of each worker; returns when all of them have got here."""
    text = json.dumps(settings).encode()
    if not is_multi_worker(strategy):
        return [json.loads(text)]
    if len(text) > LONGEST:
        raise ValueError(f"Settings of {len(text)} bytes are too long to compare.")
    mine = tf.constant(list(text.ljust(LONGEST)), tf.int32)[tf.newaxis]

    @tf.function
    def gathered() -> Any:
        return strategy.run(lambda: tf.distribute.get_replica_context().all_gather(mine, axis=0))

    rows = strategy.experimental_local_results(gathered())[0].numpy()
    replicas = len(rows) // len(_tasks(strategy))  # of a worker
    return [json.loads(bytes(row.tolist())) for row in rows[::replicas]]


def _tasks(strategy: Any) -> list[tuple[str, int]]:
    spec = strategy.cluster_resolver.cluster_spec()
    return [(kind, i) for kind in TASKS if kind in spec.jobs for i in range(spec.num_tasks(kind))]


def _cluster() -> dict[str, Any] | None:
    """TF_CONFIG, checked; None without one, or with one process."""
    text = os.environ.get("TF_CONFIG")
    if not text:
        return None
    try:
        config = json.loads(text)
        jobs, task = config["cluster"], config["task"]
        kind, index = task["type"], task["index"]
        addresses = jobs[kind]
        if not isinstance(index, int) or not 0 <= index < len(addresses):
            raise ValueError(f"there is no task {index!r} among {len(addresses)} of type {kind!r}")
        for address in (a for group in jobs.values() for a in group):
            if not address.rpartition(":")[0] or not 0 < _port(address) < 65536:
                raise ValueError(f"{address!r} is not host:port")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            'TF_CONFIG must be JSON such as {"cluster": {"worker": ["host:port", ...]}, '
            f'"task": {{"type": "worker", "index": 0}}}}: {error!r}. Received: {text[:500]}'
        ) from error
    return config if len(_addresses(config)) > 1 else None


def _addresses(config: dict[str, Any] | None) -> list[str]:
    jobs = (config or {}).get("cluster", {})
    return [address for kind in TASKS for address in jobs.get(kind, ())]


def _meet(config: dict[str, Any], timeout: float) -> None:
    """Wait until every worker is there; `ValueError` naming one that does not come.

    TensorFlow would wait without end. So that others can see this worker before TensorFlow
    listens at its address, a plain socket does.
    """
    task = config["task"]
    own = config["cluster"][task["type"]][task["index"]]
    deadline = time.monotonic() + timeout
    with socket.create_server(("", _port(own)), backlog=128):
        for address in _addresses(config):
            while address != own:
                try:
                    host = address.rpartition(":")[0]
                    socket.create_connection((host, _port(address)), timeout=5.0).close()
                    break
                except OSError as error:
                    if time.monotonic() > deadline:
                        raise ValueError(
                            f"Worker {address} did not answer within {timeout:g} s: {error}"
                        ) from error
                    time.sleep(0.5)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
