"""The supervisor: which exit codes lead to a restart, and with which flags."""

import signal

import pytest

from jem_tf.training import supervisor


@pytest.fixture
def supervise(monkeypatch):
    """A function that supervises processes with the given exit codes; returns the last code, the
    arguments of each process, and the pauses between them."""

    def run(argv, codes, restarts):
        calls, pauses, left = [], [], list(codes)
        monkeypatch.setattr(supervisor, "_run", lambda argv: calls.append(argv) or left.pop(0))
        monkeypatch.setattr(supervisor.time, "sleep", pauses.append)
        return supervisor.supervise(argv, restarts), calls, pauses

    return run


def test_a_process_that_dies_is_restarted_from_its_checkpoint(supervise, capsys):
    argv = ["train", "digits", "--overwrite", "--out", "x"]
    code, calls, pauses = supervise(argv, [-9, 1, 0], restarts=5)
    resumed = ["train", "digits", "--out", "x", "--resume"]
    assert code == 0 and calls == [argv, resumed, resumed] and pauses == [1, 2]
    error = capsys.readouterr().err
    assert "ended with code -9. Restart 1 of 5 from its last checkpoint in 1 s" in error


def test_a_run_that_is_resumed_already_is_resumed_again(supervise):
    argv = ["train", "--resume", "runs/digits"]
    assert supervise(argv, [1, 0], restarts=1)[1] == [argv, argv]


@pytest.mark.parametrize("code", [0, 2, 128 + signal.SIGINT, 128 + signal.SIGTERM])
def test_some_exit_codes_are_final(code, supervise):
    assert supervise(["train"], [code], restarts=5)[::2] == (code, [])


def test_restarts_are_limited_and_pauses_grow_to_30_seconds(supervise):
    code, calls, pauses = supervise(["train"], [7] * 8, restarts=7)
    assert code == 7 and len(calls) == 8
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_a_supervised_process_is_marked(monkeypatch):
    monkeypatch.delenv(supervisor.SUPERVISED, raising=False)
    assert not supervisor.is_supervised()
    monkeypatch.setenv(supervisor.SUPERVISED, "1")
    assert supervisor.is_supervised()
