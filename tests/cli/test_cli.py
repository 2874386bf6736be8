"""The command line as a user meets it: runs, their files, and messages when things go wrong."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from jem_tf import cli
from jem_tf.training import run_directory as runs
from jem_tf.training.recipes import RECIPES


def test_train_leaves_a_complete_run(run):
    config = json.loads((run / "config.json").read_text())
    assert config["recipe"]["epochs"] == 2 and config["objective"] == "joint"
    with (run / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 and {"loss", "val_accuracy", "step_size", "chain_age"} <= set(rows[0])
    assert Image.open(run / "samples.png").size[0] > 100
    assert runs.load(run).sample(2, steps=1).shape == (2, 4, 4, 1)


def test_a_run_is_never_overwritten_unasked(run, small, capsys):
    before = (run / "model.keras").read_bytes()
    assert cli.main(["train", small, "--epochs", "1", "--out", str(run)]) == 2
    assert "holds another run" in capsys.readouterr().err
    assert (run / "model.keras").read_bytes() == before
    flags = ["--epochs", "1", "--batch-size", "16", "--steps", "1", "--overwrite"]
    assert cli.main(["train", small, "--out", str(run), *flags]) == 0
    assert (run / "model.keras").read_bytes() != before


def test_overwriting_spares_what_is_no_run(small, tmp_path, capsys):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years")
    (tmp_path / "precious" / "config.json").write_text("{}")
    out = str(tmp_path / "precious")
    assert cli.main(["train", small, "--out", out, "--overwrite"]) == 2
    assert "not a run directory" in capsys.readouterr().err
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "years"


def test_sample_draws_a_picture(run, tmp_path):
    out = tmp_path / "samples.png"
    flags = ["--label", "1", "--count", "12", "--steps", "2", "--out", str(out)]
    assert cli.main(["sample", str(run), *flags]) == 0
    assert Image.open(out).size == (10 * 48 + 18, 2 * 48 + 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "digit"], "Did you mean 'digits'"),
        (["train", "digits", "--recipe", "digitz"], "Did you mean 'digits'"),
        (["train", "digits", "--objective", "hinge", "--out", "{tmp}/x"], "'hinge'"),
        (["sample", "{tmp}/nothing"], "no trained model"),
        (["sample", "{tmp}/text.keras"], "not a model"),
        (["train", "{tmp}/float.npz"], "must be integers"),
        (["train", "{tmp}/nan.npz"], "nan in row 1"),
        (["sample", "{run}", "--label", "7"], "label=7"),
    ],
)
def test_mistakes_are_answered_in_words(arguments, message, run, tmp_path, capsys):
    (tmp_path / "text.keras").write_text("not a model")
    np.savez(tmp_path / "float.npz", x=np.zeros((4, 2)), y=np.array([0.0, 1.0, 0.0, 1.0]))
    np.savez(tmp_path / "nan.npz", x=np.array([[0.0], [np.nan]]), y=np.array([0, 1]))
    assert cli.main([a.format(tmp=tmp_path, run=run) for a in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("jem-tf: ") and message in error


@pytest.mark.parametrize("flag", [["--epochs", "0"], ["--epochs", "many"], ["--colour", "red"]])
def test_wrong_flags_are_named(flag, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "digits", *flag])
    assert stop.value.code == 2
    assert flag[0] in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", *filter(None, cli.EXAMPLES)])
def test_help_teaches_with_examples(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([*command.split(), "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text and f"jem-tf {command or 'demo'}" in text


def test_help_names_every_recipe(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in RECIPES)


def test_ctrl_c_saves_the_model_and_says_how_to_go_on(small, tmp_path):
    out = tmp_path / "stopped"
    command = [sys.executable, "-c", "import sys; from jem_tf.cli import main; sys.exit(main())"]
    flags = ["--epochs", "100000", "--out", str(out)]
    process = subprocess.Popen(
        [*command, "train", small, *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:  # until the second epoch
        log = out / "log.csv"
        if log.is_file() and log.read_text().count("\n") > 1:
            break
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert f"jem-tf train --resume {out}" in error and "Traceback" not in error
    with pytest.warns(UserWarning, match="not finished"):
        model = runs.load(out)
    assert model.progress.arrays()["step"] > 0 and model.buffer.filled


def test_a_run_goes_on_with_its_own_settings_only(run, small, capsys):
    """Finished: nothing to do. Other settings: named, refused, and taken if forced."""
    before = (run / "model.keras").read_bytes()
    assert cli.main(["train", "--resume", str(run)]) == 0
    assert (run / "model.keras").read_bytes() == before
    assert cli.main(["train", "--resume", str(run), "--epochs", "3", "--seed", "5"]) == 2
    error = capsys.readouterr().err
    assert "recipe epochs was 2 and is 3" in error and "seed was 0 and is 5" in error
    assert cli.main(["train", "digits", "--out", str(run), "--resume"]) == 2
    assert "data dataset was" in capsys.readouterr().err
    assert (run / "model.keras").read_bytes() == before
    assert cli.main(["train", "--resume", str(run), "--epochs", "3", "--force"]) == 0
    with (run / "log.csv").open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "content", ["", "{}", '{"data": {}, "recipe": {"colour": 1, "drops": []}}']
)
def test_resuming_needs_the_settings_of_a_run(content, tmp_path, capsys):
    (tmp_path / "config.json").write_text(content)
    assert cli.main(["train", "--resume", str(tmp_path)]) == 2
    assert "not the settings of a run" in capsys.readouterr().err


def test_training_on_nothing_is_answered_in_words(capsys):
    assert cli.main(["train"]) == 2
    assert "what to train on" in capsys.readouterr().err
