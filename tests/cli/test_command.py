"""Exit codes of `jem-tf`, and errors in words instead of tracebacks."""

import numpy as np
import pytest

from jem_tf.cli import training
from jem_tf_cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "digit"], "Did you mean 'digits'"),
        (["train", "digits", "--recipe", "digitz"], "Did you mean 'digits'"),
        (["train", "digits", "--objective", "hinge", "--out", "{tmp}/x"], "'hinge'"),
        (["train"], "Name a data set to train on"),
        (["sample", "{tmp}/nothing"], "no trained model"),
        (["sample", "{tmp}/text.keras"], "not a model"),
        (["train", "{tmp}/float.npz"], "1.5 in row 1"),
        (["train", "{tmp}/nan.npz"], "nan in row 1"),
        (["sample", "{run}", "--label", "7"], "label=7"),
    ],
)
def test_errors_are_printed_in_words(arguments, message, trained, tmp_path, capsys):
    (tmp_path / "text.keras").write_text("not a model")
    np.savez(tmp_path / "float.npz", x=np.zeros((4, 2)), y=np.array([0.0, 1.5, 0.0, 1.0]))
    np.savez(tmp_path / "nan.npz", x=np.array([[0.0], [np.nan]]), y=np.array([0, 1]))
    assert main([word.format(tmp=tmp_path, run=trained) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("jem-tf: ") and message in error


def test_underscores_in_flags_are_dashes(monkeypatch):
    """The flags of TF Serving have underscores."""
    calls = []
    monkeypatch.setattr(training, "train", calls.append)
    assert main(["train", "my_digits", "--batch_size", "3", "--data_dir=my_dir"]) == 0
    (arguments,) = calls
    assert (arguments.dataset, arguments.batch_size, arguments.data_dir) == (
        "my_digits",
        3,
        "my_dir",
    )
    assert arguments.argv == ["train", "my_digits", "--batch-size", "3", "--data-dir=my_dir"]


def test_an_interruption_has_its_exit_code(monkeypatch, capsys):
    def interrupt(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupt)
    assert main(["train", "digits"]) == 130
    assert "Interrupted." in capsys.readouterr().err
