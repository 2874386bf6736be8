"""More than one process, on localhost: the same training as in one."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from jem_tf import cli
from jem_tf._tf import checkpoints
from jem_tf._tf import distribution as distribute
from jem_tf.training import run_directory as runs

SCRIPT = """
import sys, numpy as np, tensorflow as tf, keras, jem_tf
from jem_tf import distribute
if sys.argv[1] == "mirrored":
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * int(sys.argv[2])
    tf.config.set_logical_device_configuration(cpu, parts)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(len(parts))])
else:
    strategy = distribute.choose("multi-worker")
assert strategy.num_replicas_in_sync == int(sys.argv[2])
keras.utils.set_random_seed(1)
y = np.arange(300) % 3
x = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32) + 3 * y[:, None]
x = x.astype(np.float32)
with strategy.scope():
    layers = keras.layers.Dense(16, "silu"), keras.layers.Dense(3)
    model = jem_tf.JEM(keras.Sequential([keras.Input((2,)), *layers]), jem_tf.SGLD(3), seed=1)
    model.compile(keras.optimizers.Adam(1e-2), metrics=["accuracy"])
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(52).with_options(options)
history = model.fit(data, validation_data=data, epochs=3, verbose=0).history
chains = model.buffer.arrays()["chains"]
np.savez(sys.argv[3], *model.get_weights(), chains=chains, loss=history["loss"],
         accuracy=history["val_accuracy"])
"""


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def config(addresses, index):
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


def start(command, addresses=None, index=0):
    """A process; its errors go to a pipe."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    if addresses is not None:
        environment["TF_CONFIG"] = config(addresses, index)
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def together(n, command_of):
    """`n` workers to their ends: exit codes and what they said."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(n)]
    workers = [start(command_of(i), addresses, i) for i in range(n)]
    try:
        errors = [worker.communicate(timeout=300)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [worker.returncode for worker in workers], errors


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_workers_train_as_replicas_of_one_process_do(n, tmp_path):
    """Tolerance 1e-5: sums over processes may be in another order. 52 rows in a batch, 40 in the
    last: the parts of workers differ."""
    codes, errors = together(
        n, lambda i: ["-c", SCRIPT, "workers", str(n), str(tmp_path / f"{i}.npz")]
    )
    assert codes == [0] * n, errors
    alone = start(["-c", SCRIPT, "mirrored", str(n), str(tmp_path / "alone.npz")])
    assert alone.wait(timeout=300) == 0, alone.stderr.read()
    expected = np.load(tmp_path / "alone.npz")
    first, *others = (np.load(tmp_path / f"{i}.npz") for i in range(n))
    for name in expected:
        np.testing.assert_allclose(first[name], expected[name], rtol=1e-5, atol=1e-5)
        for other in others:
            np.testing.assert_array_equal(other[name], first[name])
    assert len(first["chains"]) == n


def train(out, small, *flags):
    """The command line of a worker."""
    every = ["--batch-size", "16", "--steps", "2", "--out", str(out), *flags]
    return ["-m", "jem_tf", "train", small, *every]


@pytest.mark.slow
def test_workers_that_disagree_are_told_what_about(small, tmp_path):
    codes, errors = together(
        2, lambda i: train(tmp_path / "run", small, "--epochs", "2", "--seed", str(i))
    )
    assert codes == [2, 2], errors
    for error in errors:
        assert "Worker 1 has other settings than the first: seed was 0 and is 1" in error


def test_a_peer_that_never_comes_is_named(small, tmp_path):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    worker = start(train(tmp_path / "run", small, "--wait", "2"), addresses, 0)
    error = worker.communicate(timeout=120)[1]
    assert worker.returncode == 2 and f"Worker {addresses[1]} did not answer within 2 s" in error


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "Expecting"),
        ("[]", "TypeError"),
        ('{"cluster": {}}', "'task'"),
        (config(["a:1", "b:2"], 2), "no task 2 among 2"),
        (config(["a:1", "b"], 0), "'b'"),
        (config(["a:1", "b:x"], 0), "'x'"),
    ],
)
def test_a_malformed_tf_config_is_named(text, message, small, monkeypatch, capsys):
    monkeypatch.setenv("TF_CONFIG", text)
    assert cli.main(["train", small]) == 2
    error = capsys.readouterr().err
    assert "TF_CONFIG must be JSON" in error and message in error


def test_strategies_by_name(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert distribute.choose("auto").num_replicas_in_sync == 1
    with pytest.raises(ValueError, match="Did you mean 'mirrored'"):
        distribute.choose("miror")
    with pytest.raises(ValueError, match="needs TF_CONFIG"):
        distribute.choose("multi-worker")
    monkeypatch.setenv("TF_CONFIG", config(["localhost:1"], 0))
    assert not distribute.spans_workers("auto")  # one worker is no cluster


@pytest.mark.slow
def test_a_killed_worker_comes_back_and_the_run_completes(tmp_path):
    """Its supervisor starts it again, and so do those of the others, from the last checkpoint."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    out = tmp_path / "run"
    command = ["-m", "jem_tf", "train", "digits", "--out", str(out), "--epochs", "40"]
    workers = [start(command, addresses, i) for i in range(2)]
    try:
        deadline = time.monotonic() + 300
        while not list(out.glob("checkpoints/0*")) and time.monotonic() < deadline:
            time.sleep(0.2)
        children = subprocess.run(
            ["pgrep", "-P", str(workers[1].pid)], capture_output=True, text=True, check=True
        )
        os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
        errors = [worker.communicate(timeout=600)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], errors
    assert all("Start 1 of 10 from its last checkpoint" in error for error in errors)
    assert runs.load(out).progress.arrays()["step"] == 40 * 21


CLUSTER = Path(__file__).parents[1] / "examples" / "cluster"


@pytest.mark.slow
def test_the_slurm_script_starts_workers_that_find_each_other(small, tmp_path):
    """With a SLURM of two tasks on this machine, in a few lines of shell."""
    bin = tmp_path / "bin"
    bin.mkdir()
    scripts = {
        "scontrol": 'echo "127.0.0.1"; echo "127.0.0.1"',
        "srun": 'SLURM_PROCID=1 "$@" & SLURM_PROCID=0 "$@" && wait $!',
        "jem-tf": f'exec {sys.executable} -m jem_tf "$@"',
    }
    for name, script in scripts.items():
        (bin / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (bin / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{bin}:{os.environ['PATH']}",
        "PORT": str(free_ports(1)[0]),
        "SLURM_JOB_NODELIST": "two",
    }
    out = tmp_path / "run"
    flags = ["--epochs", "2", "--batch-size", "16", "--steps", "2", "--out", out]
    job = subprocess.run(
        ["bash", CLUSTER / "slurm.sh", small, *flags],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert job.returncode == 0, job.stderr
    with (out / "log.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1"]
    assert checkpoints.newest(out / "checkpoints")[1]["replicas"] == 2
    assert runs.load(out).progress.arrays()["step"] == 8
    assert (out / "samples.png").is_file()


def test_the_kubeflow_job_gives_flags_that_exist():
    job = yaml.safe_load((CLUSTER / "tfjob.yaml").read_text())
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container["name"] == "tensorflow"  # the operator looks for it
    assert [port["name"] for port in container["ports"]] == ["tfjob-port"]  # and for this
    program, *flags = container["command"] + container["args"]
    arguments = cli.make_parser().parse_args(flags)
    assert program == "jem-tf" and arguments.strategy == "multi-worker"
    volumes = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(arguments.out.parent) in volumes
