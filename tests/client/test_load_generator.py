"""The load generator counts what clients see, and `jem-tf load` prints it."""

import re

import pytest

from jem_tf.client.load_generator import generate_load
from jem_tf_cli import main


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_successful_requests_are_timed(plain, transport):
    result = generate_load(plain.addresses[transport], "judge", clients=4, seconds=0.5)
    assert result.latencies and not result.failures
    assert 0 < result.milliseconds(0.5) <= result.milliseconds(0.99) < 5e3
    assert result.per_second == len(result.latencies) / result.seconds


@pytest.mark.parametrize("transport, code", [("grpc", "INVALID_ARGUMENT"), ("rest", "HTTP 400")])
def test_refused_requests_are_counted_by_status(plain, transport, code):
    """`picky` refuses negative values, and some of eight random values are negative."""
    address = plain.addresses[transport]
    result = generate_load(address, "rules", "picky", clients=2, seconds=0.3, rows=8)
    assert result.failures.keys() == {code} and not result.latencies


def test_inputs_without_a_known_shape_are_an_error(plain):
    with pytest.raises(ValueError, match="Received: 'inputs' of type string"):
        generate_load(plain.addresses["grpc"], "rules", "classify")


def test_the_command_prints_rates(plain, capsys):
    flags = ["--model", "judge", "--address", plain.addresses["grpc"], "--seconds", "0.3"]
    assert main(["load", *flags, "--clients", "1", "2"]) == 0
    assert len(re.findall(r"\d clients: \d+ requests/s, p50", capsys.readouterr().out)) == 2


def test_the_command_reports_failures_and_usage_errors(plain, capsys):
    flags = ["--address", plain.addresses["rest"], "--seconds", "0.2", "--rows", "8"]
    assert main(["load", "--model", "rules", *flags, "--signature", "picky"]) == 2
    assert "HTTP 400" in capsys.readouterr().err
    assert main(["load", "--model", "judge", *flags, "--signature", "none"]) == 2
    assert "again, serving_default. Received: 'none'" in capsys.readouterr().err
