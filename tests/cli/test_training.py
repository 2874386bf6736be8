"""`jem-tf train`: runs that are resumed, overwritten and interrupted as the flags say."""

import csv
import json
import os
import shutil
import signal
import threading

import pytest
from helpers import assert_same_weights

import jem_tf
from jem_tf.cli import exporting, targets
from jem_tf.objectives import HDGE
from jem_tf.training import recipes, run_directory
from jem_tf.training import run as training_run
from jem_tf_cli import main

QUICK = ["--batch-size", "60", "--steps", "2"]


def epochs_in_log(run):
    with (run / "log.csv").open() as file:
        return [row["epoch"] for row in csv.DictReader(file)]


def test_a_run_is_overwritten_on_request_only(run, small, capsys):
    before = (run / "model.keras").read_bytes()
    assert main(["train", small, "--epochs", "1", "--out", str(run)]) == 2
    assert "holds another run" in capsys.readouterr().err
    assert (run / "model.keras").read_bytes() == before
    flags = ["--epochs", "1", *QUICK, "--objective", "hdge", "--overwrite"]
    assert main(["train", small, "--out", str(run), *flags]) == 0
    assert "model.keras is ready" in capsys.readouterr().out
    assert json.loads((run / "config.json").read_text())["objective"] == "hdge"
    assert type(jem_tf.load(run).objective) is HDGE
    assert epochs_in_log(run) == ["0"]


def test_other_directories_are_not_overwritten(small, tmp_path, capsys):
    out = tmp_path / "precious"
    out.mkdir()
    (out / "thesis.tex").write_text("years")
    (out / "config.json").write_text("{}")
    assert main(["train", small, "--out", str(out), "--overwrite"]) == 2
    assert "not a run directory" in capsys.readouterr().err
    assert (out / "thesis.tex").read_text() == "years"


def test_a_run_is_resumed_with_its_own_settings_only(run, capsys):
    """A finished run is not changed. Other settings raise, unless they are forced."""
    before = (run / "model.keras").read_bytes()
    assert main(["train", "--resume", str(run)]) == 0
    assert (run / "model.keras").read_bytes() == before
    assert main(["train", "--resume", str(run), "--epochs", "3", "--seed", "5"]) == 2
    error = capsys.readouterr().err
    assert "recipe epochs was 2 and is 3" in error and "seed was 0 and is 5" in error
    assert main(["train", "digits", "--out", str(run), "--resume"]) == 2
    assert "data dataset was" in capsys.readouterr().err
    assert (run / "model.keras").read_bytes() == before
    assert main(["train", "--resume", str(run), "--epochs", "3", "--force"]) == 0
    assert epochs_in_log(run) == ["0", "1", "2"]


@pytest.mark.slow
def test_a_run_is_repeated_by_its_recipe_file(run, tmp_path):
    again = tmp_path / "again"
    flags = ["--recipe", str(run / "recipe.toml"), "--out", str(again)]
    assert main(["train", *flags]) == 0
    settings = [json.loads((r / "config.json").read_text()) for r in (run, again)]
    assert settings[0] == settings[1]
    assert (again / "recipe.toml").read_text() == (run / "recipe.toml").read_text()
    assert_same_weights(jem_tf.load(run), jem_tf.load(again))


def test_a_field_of_the_recipe_is_set_or_the_error_suggests_one(small, tmp_path, capsys):
    out = tmp_path / "run"
    flags = ["--set", "epochs=1", "--set=backbone_options.width=4", "--objective", "hdge"]
    flags += ["--set", "objective_options.classifies=false"]
    assert main(["train", small, *flags, "--out", str(out)]) == 0
    recipe = json.loads((out / "config.json").read_text())["recipe"]
    assert recipe["epochs"] == 1 and recipe["backbone_options"] == {"width": 4}
    assert jem_tf.load(out).objective.classifies is False
    assert main(["train", small, "--set", "temprature=1"]) == 2
    assert "Did you mean 'temperature'" in capsys.readouterr().err


def test_recipes_are_listed_with_what_they_reached(capsys):
    assert main(["recipes"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(lines) == {"recipe", *recipes.RECIPES}
    assert "98.9 %" in lines["digits"] and "%" not in lines["cifar10"]


def test_resuming_needs_the_settings_of_a_run(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    assert main(["train", "--resume", str(tmp_path)]) == 2
    assert "not the settings of a run" in capsys.readouterr().err


def test_ctrl_c_saves_the_model_and_prints_how_to_resume(small, tmp_path, capsys):
    out = tmp_path / "stopped"
    finished = threading.Event()

    def interrupt_in_the_second_epoch():
        log = out / "log.csv"
        while not (log.is_file() and log.read_text().count("\n") > 1):
            if finished.wait(0.05):
                return
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_in_the_second_epoch)
    thread.start()
    try:
        code = main(["train", small, "--epochs", "100000", *QUICK, "--out", str(out)])
    finally:
        finished.set()
        thread.join()
    assert code == 130
    assert f"jem-tf train --resume {out}" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="not finished"):
        model = jem_tf.load(out)
    assert model.progress.number("step") > 0 and model.buffer.filled


def test_a_malformed_tf_config_is_an_error(small, monkeypatch, capsys):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {}}')
    assert main(["train", small]) == 2
    error = capsys.readouterr().err
    assert "TF_CONFIG must be JSON" in error and "'task'" in error


def test_a_table_with_a_label_column_is_trained_on(tmp_path, blobs, capsys):
    """After a failure the same command can be typed again."""
    x, y = blobs
    lines = [f"{i},{a},{b},{'uvw'[label]}" for i, ((a, b), label) in enumerate(zip(x, y))]
    lines[5] = "5,,1.0,u"
    table, out = tmp_path / "blobs.csv", tmp_path / "run"
    table.write_text("\n".join(["id,a,b,kind", *lines]))
    flags = ["--label", "kind", "--columns", "a", "b", "--epochs", "1", "--steps", "2"]
    command = ["train", str(table), *flags, "--out", str(out)]
    assert main([*command, "--strict"]) == 2 and not out.exists()
    assert "row 5 (column 'a' is missing)" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="1 of 300 rows"):
        assert main(command) == 0
    config = json.loads((out / "config.json").read_text())
    assert config["class_names"] == ["u", "v", "w"]
    assert (config["data"]["label"], config["data"]["columns"]) == ("kind", ["a", "b"])
    with pytest.warns(UserWarning, match="1 of 300 rows"):
        assert run_directory.load_data(out).shape == (2,)
    other = tmp_path / "other.csv"
    other.write_text("\n".join(["id,a,b,class", *lines[10:250]]))
    with pytest.raises(ValueError, match="no column 'kind'"):
        targets.load_data(out, str(other), None)
    assert targets.load_data(out, str(other), None, label="class").class_names == ("u", "v", "w")
    model = jem_tf.load(out)
    calibration = exporting.calibration_data(out, model, str(other), label="class")
    assert calibration.class_names == ("u", "v", "w") and calibration.shape == (2,)
    calibration = exporting.calibration_data(out, model, str(other), label="class", columns=["b"])
    assert calibration.shape == (1,)
    other.write_text("\n".join(["id,a,b,kind", *(line for line in lines[10:] if "w" not in line)]))
    with pytest.raises(ValueError, match=r"classes u, v, w\. Received: .* with u, v"):
        targets.load_data(out, str(other), None)


def fail(*_, **__):
    raise ValueError("disk full")


@pytest.mark.parametrize("where", ["fit", "adapt", "before fit"])
def test_a_run_that_fails_leaves_nothing_in_the_way(where, small, tmp_path, monkeypatch, capsys):
    out = tmp_path / "run"
    before_fit = where == "before fit"
    target = (training_run, "_callbacks") if before_fit else (jem_tf.JEM, where)
    monkeypatch.setattr(*target, fail)
    assert main(["train", small, *QUICK, "--out", str(out)]) == 2
    assert "disk full" in capsys.readouterr().err and not out.exists()


def test_a_model_without_checkpoints_survives_a_resumed_run_that_fails(run, monkeypatch, capsys):
    """Such as an imported one."""
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    before = (run / "model.keras").read_bytes()
    monkeypatch.setattr(jem_tf.JEM, "fit", fail)
    assert main(["train", "--resume", str(run), "--epochs", "3", "--force"]) == 2
    assert "disk full" in capsys.readouterr().err
    assert (run / "model.keras").read_bytes() == before


def test_tensorboard_is_looked_for_before_training(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(training_run.importlib.util, "find_spec", lambda name: None)
    assert main(["train", small, "--tensorboard", "--out", str(tmp_path / "run")]) == 2
    assert "pip install tensorboard" in capsys.readouterr().err
