"""Runs of likelihood models: files, resuming, and the benchmark that reads them."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from jem_tf import data, likelihood
from jem_tf.training import likelihood as runs

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "likelihood.py"
OPTIONS = {"filters": 2, "mixture": 1, "epochs": 1, "batch_size": 128}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "pixelcnn"
    runs.train(data.load("digits"), "pixelcnn", out, OPTIONS, verbose=False)
    return out


def test_a_run_directory_has_the_model_the_log_and_the_settings(run):
    files = {file.name for file in run.iterdir()}
    assert files == {"config.json", "log.csv", "model.npz", "result.json", "samples.png"}
    config = json.loads((run / "config.json").read_text())
    assert (config["objective"], config["recipe"]["model"]) == ("pixelcnn", "pixelcnn")
    assert config["recipe"]["options"] == {"levels": 17, "filters": 2, "mixture": 1}
    head, line = (run / "log.csv").read_text().splitlines()
    assert head == "epoch,bits_per_dim,val_bits_per_dim,seconds"
    rows = runs.load_data(run)
    x = rows.arrays("validation", runs.VALIDATION_ROWS)[0]
    bits = likelihood.load(run).bits_per_dim(x).mean()
    assert float(line.split(",")[2]) == pytest.approx(bits, rel=1e-5)


def test_a_finished_run_is_loaded_and_another_one_is_not_replaced(run):
    digits = data.load("digits")
    model = runs.train(digits, "pixelcnn", run, OPTIONS, resume=True, verbose=False)
    x = digits.arrays("test", 5)[0]
    np.testing.assert_array_equal(model.log_density(x), likelihood.load(run).log_density(x))
    with pytest.raises(ValueError, match="filters was 2 and is 3"):
        runs.train(digits, "pixelcnn", run, {**OPTIONS, "filters": 3}, resume=True)
    with pytest.raises(ValueError, match="--overwrite"):
        runs.train(digits, "pixelcnn", run, OPTIONS)


def test_options_of_the_command_line():
    assert runs.parse_options("glow", ["depth=4", "levels=17"]) == {"depth": 4, "levels": 17}
    with pytest.raises(ValueError, match="Did you mean 'filters'"):
        runs.parse_options("pixelcnn", ["filter=4"])


def test_the_benchmark_measures_a_run_and_draws_it(run, tmp_path, monkeypatch, capsys):
    out, picture = tmp_path / "result.json", tmp_path / "picture.png"
    flags = ["--ood", "noise", "--rows", "100", "--out", str(out), "--picture", str(picture)]
    monkeypatch.setattr(sys, "argv", ["likelihood.py", str(run), *flags])
    runpy.run_path(str(BENCHMARK))["main"]()
    result = json.loads(out.read_text())["likelihood"][str(run)]
    model, x = likelihood.load(run), data.load("digits").arrays("test", 100)[0]
    assert result["bits_per_dim"] == pytest.approx(model.bits_per_dim(x).mean(), rel=1e-5)
    assert 0.0 <= result["auroc"]["gradient_norm"]["noise"] <= 1.0
    assert "log p(x)" in capsys.readouterr().out and picture.stat().st_size > 1000
