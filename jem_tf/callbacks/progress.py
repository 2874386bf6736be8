"""One line for each epoch, which fits into 80 columns.

Not here: the metrics themselves. All of them go to `log.csv` and TensorBoard.
"""

import sys
import time
from typing import Any, TextIO

import keras


class EpochLine(keras.callbacks.Callback):
    """Prints a line of progress for each epoch; use it with `fit(..., verbose=0)`.

    ```python
    model.fit(x, y, epochs=10, verbose=0, callbacks=[EpochLine()])
    ```

    ```
    epoch    loss  acc %  val %      gap  trusted %  time left
     3/80   1.760   80.6   78.5    -0.32       98.2       1:12
    ```

    On a terminal, the line of the running epoch is updated in place.
    """

    def __init__(self, file: TextIO | None = None):
        super().__init__()
        self._file = file

    @property
    def file(self) -> TextIO:
        return sys.stdout if self._file is None else self._file

    def on_train_begin(self, logs: Any = None) -> None:
        self._header_due = True
        self._begin = self._updated = time.monotonic()
        self._first_epoch: int | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        if self._first_epoch is None:
            self._first_epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        now = time.monotonic()
        if not self.file.isatty() or now - self._updated < 0.5:
            return
        self._updated = now
        steps = self.params.get("steps")
        percent = f" {100 * (batch + 1) // steps:3d} %" if steps else f" step {batch + 1}"
        self._write(logs or {}, f"{percent}\r")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._write(logs or {}, "\n", done=1)

    def _write(self, logs: dict[str, Any], end: str, done: int = 0) -> None:
        columns = {
            "loss": (8, logs.get("loss"), "{:.3f}"),
            "acc %": (7, _percent(logs.get("accuracy")), "{:.1f}"),
            "val %": (7, _percent(logs.get("val_accuracy")), "{:.1f}"),
            "gap": (9, logs.get("gap"), "{:.2f}"),
            "trusted %": (11, _percent(logs.get("trusted")), "{:.1f}"),
        }
        hidden = {"gap", "trusted %"} if "gap" not in logs else set()  # there are no chains
        columns = {name: column for name, column in columns.items() if name not in hidden}
        total = self.params.get("epochs") or 1
        width = max(6, 2 * len(str(total)) + 2)
        if self._header_due:
            names = "".join(name.rjust(size) for name, (size, *_) in columns.items())
            print("epoch".rjust(width) + names + "  time left", file=self.file)
            self._header_due = False
        values = "".join(
            ("" if value is None else form.format(float(value))).rjust(size)
            for size, value, form in columns.values()
        )
        place = f"{self._epoch + 1}/{total}".rjust(width)
        text = place + values + self._time_left(done, total).rjust(11)
        print(text, end=end, file=self.file, flush=True)

    def _time_left(self, done: int, total: int) -> str:
        epochs = self._epoch + done - (self._first_epoch or 0)
        if not epochs:
            return ""
        seconds = (time.monotonic() - self._begin) / epochs * (total - self._epoch - done)
        minutes, seconds = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _percent(value: Any) -> float | None:
    return None if value is None else 100.0 * float(value)
