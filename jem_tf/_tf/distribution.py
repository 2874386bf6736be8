"""Where to train: a `tf.distribute` strategy by name, with the workers of TF_CONFIG.

Not here: what replicas exchange (`state.py`, `replicas.py`).
"""

import json
import os
import socket
import time
from typing import Any

import tensorflow as tf

from jem_tf.checks import check_known

STRATEGIES = ("auto", "mirrored", "multi-worker", "none")
TRAINING_TASKS = ("chief", "worker")  # task types that train; the chief, or worker 0, writes files
MAX_SETTINGS_BYTES = 2**16  # that workers exchange to compare their settings


def choose_strategy(name: str = "auto", timeout: float = 300.0) -> tf.distribute.Strategy:
    """Return the strategy `name`.

    "auto" takes all workers of TF_CONFIG if there are several, else all GPUs, else one device.
    With several workers, wait up to `timeout` seconds until all of them are reachable.
    """
    if spans_workers(name):
        _wait_for_workers(_read_tf_config() or {}, timeout)
        return tf.distribute.MultiWorkerMirroredStrategy()
    if name == "mirrored" or (name == "auto" and len(tf.config.list_physical_devices("GPU")) > 1):
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def spans_workers(name: str) -> bool:
    """Whether the strategy `name` uses more than one process."""
    check_known("strategy", name, STRATEGIES)
    config = _read_tf_config() if name in ("auto", "multi-worker") else None
    if name == "multi-worker" and config is None:
        raise ValueError("The strategy multi-worker needs TF_CONFIG with more than one worker.")
    return config is not None


def is_multi_worker(strategy: Any) -> bool:
    """Whether `strategy` spans more than one process."""
    return (
        isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        and strategy.cluster_resolver is not None
        and len(_tasks(strategy)) > 1
    )


def worker_index(strategy: Any) -> int:
    """The index of this process among those of `strategy`; the chief has index 0."""
    if not is_multi_worker(strategy):
        return 0
    resolver = strategy.cluster_resolver
    return _tasks(strategy).index((resolver.task_type, resolver.task_id))


def gather_settings(strategy: Any, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of every worker, once all workers have called this."""
    text = json.dumps(settings).encode()
    if not is_multi_worker(strategy):
        return [json.loads(text)]
    if len(text) > MAX_SETTINGS_BYTES:
        raise ValueError(
            f"Settings must have at most {MAX_SETTINGS_BYTES} bytes as JSON to be compared "
            f"between workers. Received: {len(text)} bytes"
        )
    padded = tf.constant(list(text.ljust(MAX_SETTINGS_BYTES)), tf.int32)[tf.newaxis]

    @tf.function
    def gather() -> Any:
        return strategy.run(lambda: tf.distribute.get_replica_context().all_gather(padded, axis=0))

    rows = strategy.experimental_local_results(gather())[0].numpy()
    replicas_per_worker = len(rows) // len(_tasks(strategy))
    return [json.loads(bytes(row.tolist())) for row in rows[::replicas_per_worker]]


def _tasks(strategy: Any) -> list[tuple[str, int]]:
    spec = strategy.cluster_resolver.cluster_spec()
    kinds = [kind for kind in TRAINING_TASKS if kind in spec.jobs]
    return [(kind, index) for kind in kinds for index in range(spec.num_tasks(kind))]


def _read_tf_config() -> dict[str, Any] | None:
    """TF_CONFIG, checked; None if it is not set or names one process only."""
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
    return config if len(_worker_addresses(config)) > 1 else None


def _worker_addresses(config: dict[str, Any]) -> list[str]:
    jobs = config.get("cluster", {})
    return [address for kind in TRAINING_TASKS for address in jobs.get(kind, ())]


def _wait_for_workers(config: dict[str, Any], timeout: float) -> None:
    """Wait until every worker is reachable; raise `ValueError` naming one that is not.

    TensorFlow itself waits without a limit. A plain socket listens at this worker's address, so
    that others can see the worker before TensorFlow listens there.
    """
    task = config["task"]
    own_address = config["cluster"][task["type"]][task["index"]]
    deadline = time.monotonic() + timeout
    with socket.create_server(("", _port(own_address)), backlog=128):
        for address in _worker_addresses(config):
            while address != own_address:
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
