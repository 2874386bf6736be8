"""`EpochLine`: a header, then a line of at most 80 columns for each epoch."""

import io
import re

import pytest

from jem_tf.callbacks import EpochLine
from jem_tf.callbacks import progress as module

LOGS = {
    "loss": 1.7604,
    "accuracy": 0.806,
    "val_accuracy": 0.785,
    "gap": -0.324,
    "trusted": 0.9821,
    "step_size": 1.0,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """The time that `EpochLine` reads; tests set `clock.now`."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def begin(file, epochs, steps=None):
    """An `EpochLine` at the beginning of `fit`."""
    line = EpochLine(file)
    line.set_params({"epochs": epochs, "steps": steps})
    line.on_train_begin()
    return line


def run(line, clock, epochs, seconds, logs=LOGS):
    for epoch in epochs:
        line.on_epoch_begin(epoch)
        clock.now += seconds
        line.on_epoch_end(epoch, logs)


def test_the_header_is_printed_once_and_values_are_below_their_names(clock):
    file = io.StringIO()
    run(begin(file, epochs=80), clock, range(3), seconds=2.0)
    header, *rows = file.getvalue().splitlines()
    assert len(rows) == 3
    assert header.strip() == "epoch    loss  acc %  val %      gap  trusted %  time left"
    assert rows[2].strip() == "3/80   1.760   80.6   78.5    -0.32       98.2       2:34"
    names = [match.end() for match in re.finditer(r"\S+( %| left)?", header)]
    values = [match.end() for match in re.finditer(r"\S+", rows[2])]
    assert names == values  # right-aligned columns


@pytest.mark.parametrize("epochs", [1, 80, 99_999])
def test_lines_fit_into_80_columns(epochs, clock):
    large = {**LOGS, "loss": -12345.6789, "gap": -98765.4}
    file = Terminal()
    line = begin(file, epochs, steps=10_000)
    line.on_epoch_begin(0)
    clock.now += 3600.0
    line.on_train_batch_end(9_999, large)
    line.on_epoch_end(0, large)
    lines = re.split(r"[\r\n]", file.getvalue())
    assert len(lines) == 4 and max(map(len, lines)) <= 80


def test_the_time_left_is_that_of_the_epochs_of_this_run(clock):
    """A resumed run begins at a later epoch."""
    file = io.StringIO()
    run(begin(file, epochs=130), clock, [10, 11], seconds=60.0)
    times = [row.split()[-1] for row in file.getvalue().splitlines()[1:]]
    assert times == ["1:59:00", "1:58:00"]
    assert file.getvalue().splitlines()[1].split()[0] == "11/130"


def test_the_state_of_chains_is_shown_for_objectives_with_chains_only(clock):
    file = io.StringIO()
    logs = {name: value for name, value in LOGS.items() if name not in ("gap", "trusted")}
    run(begin(file, epochs=2), clock, range(2), 1.0, logs)
    header, *rows = file.getvalue().splitlines()
    assert header.strip() == "epoch    loss  acc %  val %  time left"
    assert rows[1].split() == ["2/2", "1.760", "80.6", "78.5", "0:00"]


def test_without_validation_the_column_is_empty(clock):
    file = io.StringIO()
    run(begin(file, epochs=1), clock, [0], 1.0, {"loss": 0.5, "accuracy": 1.0})
    assert file.getvalue().splitlines()[1].split() == ["1/1", "0.500", "100.0", "0:00"]


def test_the_line_of_the_running_epoch_is_updated_on_a_terminal_only(clock):
    for file, updates in ((Terminal(), 1), (io.StringIO(), 0)):
        line = begin(file, epochs=4, steps=20)
        line.on_epoch_begin(0)
        for batch in range(10):  # 0.06 s each; a line is updated after half a second
            clock.now += 0.06
            line.on_train_batch_end(batch, LOGS)
        assert file.getvalue().count("\r") == updates
        assert file.getvalue().count(" 45 %") == updates


def test_fit_prints_to_the_standard_output_or_to_the_file(make_model, blobs, capsys):
    file = io.StringIO()
    model = make_model()
    model.compile("adam", run_eagerly=True)
    options = {"batch_size": 300, "epochs": 2, "verbose": 0, "validation_data": blobs}
    model.fit(*blobs, **options, callbacks=[EpochLine(), EpochLine(file)])
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == file.getvalue().splitlines()[0]
    for text in (printed, file.getvalue()):
        lines = text.splitlines()
        assert len(lines) == 3 and [line.split()[0] for line in lines[1:]] == ["1/2", "2/2"]
        assert "trusted" in lines[0]
