"""Several worker processes on this machine train as replicas of one process do."""

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

import jem_tf
from jem_tf._tf import checkpoints
from jem_tf_cli import main
from jem_tf_cli.parser import make_parser

from . import worker

CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"


def free_ports(n):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def tf_config(addresses, index):
    task = {"type": "worker", "index": index}
    return json.dumps({"cluster": {"worker": addresses}, "task": task})


def start(command, addresses=None, index=0):
    """Start a Python process; its errors go to a pipe."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    if addresses is not None:
        environment["TF_CONFIG"] = tf_config(addresses, index)
    return subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_workers(n, make_command):
    """Run `n` workers to their ends; return exit codes and what they wrote to stderr."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(n)]
    workers = [start(make_command(i), addresses, i) for i in range(n)]
    try:
        errors = [process.communicate(timeout=300)[1] for process in workers]
    finally:
        for process in workers:
            process.kill()
    return [process.returncode for process in workers], errors


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_workers_train_as_replicas_of_one_process_do(n, mirrored, tmp_path):
    """Tolerance 1e-5: sums over processes may be in another order."""
    script = str(worker.__file__)
    codes, errors = run_workers(
        n, lambda i: [script, "multi-worker", str(n), str(tmp_path / f"{i}.npz")]
    )
    assert codes == [0] * n, errors
    if n == mirrored.num_replicas_in_sync:
        expected = worker.train(mirrored)
    else:
        process = start([script, "mirrored", str(n), str(tmp_path / "mirrored.npz")])
        assert process.wait(timeout=300) == 0, process.stderr.read()
        expected = np.load(tmp_path / "mirrored.npz")
    first, *others = (np.load(tmp_path / f"{i}.npz") for i in range(n))
    for name in expected:
        np.testing.assert_allclose(first[name], expected[name], rtol=1e-5, atol=1e-5)
        for other in others:
            np.testing.assert_array_equal(other[name], first[name])
    assert len(first["chains"]) == n


def train_command(out, small, *flags):
    """The command of a worker."""
    settings = ["--batch-size", "16", "--steps", "2", "--out", str(out), *flags]
    return ["-m", "jem_tf_cli", "train", small, *settings]


@pytest.mark.slow
def test_workers_with_other_settings_stop(small, tmp_path):
    codes, errors = run_workers(
        2, lambda i: train_command(tmp_path / "run", small, "--epochs", "2", "--seed", str(i))
    )
    assert codes == [2, 2], errors
    for error in errors:
        assert "Worker 1 has other settings than the first: seed was 0 and is 1" in error


@pytest.mark.slow
def test_an_unreachable_worker_ends_the_command(small, tmp_path, monkeypatch, capfd):
    """The supervised process ends with code 2, which is final."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    monkeypatch.setenv("TF_CONFIG", tf_config(addresses, 0))
    with pytest.raises(SystemExit) as stop:
        main(["train", small, "--out", str(tmp_path / "run"), "--wait", "1"])
    assert stop.value.code == 2
    assert f"Worker {addresses[1]} did not answer within 1 s" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_completes(tmp_path):
    """The supervisors of all workers restart them from the last checkpoint."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    out = tmp_path / "run"
    command = ["-m", "jem_tf_cli", "train", "digits", "--out", str(out), "--epochs", "40"]
    workers = [start(command, addresses, i) for i in range(2)]
    try:
        deadline = time.monotonic() + 300
        while not list(out.glob("checkpoints/0*")) and time.monotonic() < deadline:
            time.sleep(0.2)
        children = subprocess.run(
            ["pgrep", "-P", str(workers[1].pid)], capture_output=True, text=True, check=True
        )
        os.kill(int(children.stdout.split()[0]), signal.SIGKILL)
        errors = [process.communicate(timeout=600)[1] for process in workers]
    finally:
        for process in workers:
            process.kill()
    assert [process.returncode for process in workers] == [0, 0], errors
    assert all("Restart 1 of 10 from its last checkpoint" in error for error in errors)
    assert jem_tf.load(out).progress.number("step") == 40 * 21


@pytest.mark.slow
def test_the_slurm_script_starts_workers_that_find_each_other(small, tmp_path):
    """With a SLURM of two tasks on this machine, in a few lines of shell."""
    bin = tmp_path / "bin"
    bin.mkdir()
    scripts = {
        "scontrol": 'echo "127.0.0.1"; echo "127.0.0.1"',
        "srun": 'SLURM_PROCID=1 "$@" & SLURM_PROCID=0 "$@" && wait $!',
        "jem-tf": f'exec {sys.executable} -m jem_tf_cli "$@"',
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
    assert jem_tf.load(out).progress.number("step") == 2 * 22  # 345 rows in batches of 16
    assert (out / "samples.png").is_file()


def test_the_kubeflow_job_uses_flags_that_exist():
    job = yaml.safe_load((CLUSTER / "tfjob.yaml").read_text())
    (container,) = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container["name"] == "tensorflow"  # the operator requires this name
    assert [port["name"] for port in container["ports"]] == ["tfjob-port"]  # and this
    program, *flags = container["command"] + container["args"]
    arguments = make_parser(flags).parse_args(flags)
    assert program == "jem-tf" and arguments.strategy == "multi-worker"
    volumes = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(arguments.out.parent) in volumes
