"""Strategies by name, TF_CONFIG, and waiting for workers."""

import json
import socket
import threading

import pytest
import tensorflow as tf

from jem_tf._tf import distribution


def tf_config(addresses, index):
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


def test_a_strategy_is_chosen_by_name(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for name in ("auto", "none"):
        assert distribution.choose_strategy(name) is tf.distribute.get_strategy()
    with pytest.raises(ValueError, match="Did you mean 'mirrored'"):
        distribution.choose_strategy("miror")
    with pytest.raises(ValueError, match="needs TF_CONFIG"):
        distribution.choose_strategy("multi-worker")


def test_one_worker_is_not_a_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config(["localhost:1"], 0))
    assert not distribution.spans_workers("auto")
    monkeypatch.setenv("TF_CONFIG", tf_config(["localhost:1", "localhost:2"], 0))
    assert distribution.spans_workers("auto") and distribution.spans_workers("multi-worker")
    assert not distribution.spans_workers("none")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting"),
        ("[]", "TypeError"),
        ('{"cluster": {}}', "'task'"),
        (tf_config(["a:1", "b:2"], 2), "no task 2 among 2"),
        (tf_config(["a:1", "b"], 0), "'b'"),
        (tf_config(["a:1", "b:x"], 0), "'x'"),
    ],
)
def test_errors_quote_a_malformed_tf_config(text, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="TF_CONFIG must be JSON") as error:
        distribution.choose_strategy("auto")
    assert message in str(error.value)


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def test_an_unreachable_worker_raises(monkeypatch):
    own, other = (f"127.0.0.1:{port}" for port in free_ports(2))
    monkeypatch.setenv("TF_CONFIG", tf_config([own, other], 0))
    with pytest.raises(ValueError, match=f"Worker {other} did not answer within 0.6 s"):
        distribution.choose_strategy("auto", timeout=0.6)


def test_a_worker_waits_for_the_others_and_can_be_reached_meanwhile():
    own, other = free_ports(2)
    config = json.loads(tf_config([f"127.0.0.1:{own}", f"127.0.0.1:{other}"], 0))
    thread = threading.Thread(target=distribution._wait_for_workers, args=(config, 30.0))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    socket.create_connection(("127.0.0.1", own), timeout=5.0).close()
    with socket.create_server(("127.0.0.1", other)):
        thread.join(30.0)
    assert not thread.is_alive()


def test_one_process_is_its_own_chief():
    strategy = tf.distribute.get_strategy()
    assert distribution.worker_index(strategy) == 0
    assert not distribution.is_multi_worker(strategy)
    assert distribution.gather_settings(strategy, {"seed": (1, 2)}) == [{"seed": [1, 2]}]
