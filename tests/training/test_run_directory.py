"""Run directories: which may be overwritten, the data of a run, and its log."""

import csv

import pytest

from jem_tf.training import run_directory


def test_a_finished_run_names_its_data(trained, small):
    assert run_directory.is_run(trained) and not run_directory.is_run(trained.parent)
    dataset = run_directory.load_data(trained)
    assert dataset.name == "small" and dataset.shape == (4, 4, 1)
    assert run_directory.read_json(trained / "config.json")["data"]["dataset"] == small


def test_only_runs_are_overwritten_and_only_on_request(trained, tmp_path):
    run_directory.check_free(tmp_path / "new", overwrite=False)
    run_directory.check_free(tmp_path, overwrite=False)  # empty
    with pytest.raises(ValueError, match="holds another run"):
        run_directory.check_free(trained, overwrite=False)
    run_directory.check_free(trained, overwrite=True)
    for name, content in (("thesis.tex", "years"), ("config.json", "{}")):
        (tmp_path / name).write_text(content)
        with pytest.raises(ValueError, match="not a run directory: not overwritten"):
            run_directory.check_free(tmp_path, overwrite=True)


def test_the_log_begins_with_the_epochs_of_the_checkpoint(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss\n0,1.0\n1,0.5\n2,0.2\n")
    history = [{"loss": 1.0, "epoch": 0, "accuracy": 0.5}, {"loss": 0.5, "epoch": 1, "accuracy": 1}]
    run_directory.write_log(path, history)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1"]
    assert list(rows[0]) == ["epoch", "accuracy", "loss"]  # as Keras' CSVLogger writes them
    run_directory.write_log(path, [])
    assert path.read_text() == ""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("saved", [False, True])
def test_a_failed_run_is_removed_unless_it_can_be_resumed(error, saved, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    if saved:
        (run / "checkpoints" / "1").mkdir(parents=True)
    with pytest.raises(error), run_directory.removed_on_failure(run):
        raise error
    assert run.exists() == (saved or error is KeyboardInterrupt)
