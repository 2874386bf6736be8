"""A training that is stopped goes on as if nothing had happened.

Not here: the files of a checkpoint (`checkpoints.py`), what a step does (`model.py`).
"""

import signal
import threading
import time
import traceback
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np

from jem_tf._tf import checkpoints
from jem_tf._tf import distribution as distribute

WORKERS_STEPS = 200  # between two checkpoints of a training with more than one worker


class Interrupted(KeyboardInterrupt):
    """Training was stopped by a signal; `checkpoint` is where it goes on."""

    def __init__(self, checkpoint: Path | None, epoch: int, batch: int, number: int):
        self.checkpoint = checkpoint
        self.exit_code = 128 + number
        where = "no checkpoint could be written" if checkpoint is None else f"saved {checkpoint}"
        super().__init__(f"Stopped after step {batch} of epoch {epoch + 1}: {where}")


class Resume(keras.callbacks.Callback):
    """Saves a training, and goes on from its last checkpoint as if nothing had happened.

    ```python
    model.fit(rows, epochs=10, callbacks=[Resume("checkpoints")])    # the same to begin and go on
    ```

    A checkpoint holds weights, optimizer, averaged weights, chains, counters, the metrics of the
    epoch so far and the history. On one CPU device the weights are then, bit for bit, those of a
    training that was never stopped, if the order of the data depends on the epoch only: use
    `Dataset.epochs(first=resume.epoch)` of `jem_tf.data`, or data that is not shuffled.

    SIGTERM and Ctrl-C save after the step, and raise `Interrupted`; a second one stops at once. A
    damaged checkpoint is noticed, and the one before it used. With more than one worker, the first
    one writes, all read, and they save every `steps` steps (200 unless told), as their clocks
    differ; a signal then stops without saving.

    Args:
        directory: of the checkpoints.
        seconds: time between two of them; longer where saving would take more than 3 % of it.
        steps: or steps between them.
        keep: how many remain.
    """

    def __init__(
        self,
        directory: str | Path,
        seconds: float = 60.0,
        steps: int | None = None,
        keep: int = 2,
    ):
        super().__init__()
        if not seconds > 0 or not keep > 0 or not (steps is None or steps > 0):
            raise ValueError(
                "`seconds`, `steps` and `keep` must be positive. "
                f"Received: seconds={seconds!r}, steps={steps!r}, keep={keep!r}"
            )
        self.directory = Path(directory)
        self.seconds, self.steps, self.keep = seconds, steps, keep
        self._found = checkpoints.newest(self.directory)
        self._state = self._found[1] if self._found else {}
        self.history: list[dict[str, Any]] = list(self._state.get("history", ()))
        self._position = (self.epoch, self._state.get("batch", 0))
        self._skipping = False
        self._signal: int | None = None
        self._before: dict[int, Any] = {}
        self._pause = seconds

    @property
    def epoch(self) -> int:
        """The epoch that training begins with: 0, or that of the checkpoint."""
        return self._state.get("epoch", 0)

    def on_train_begin(self, logs: Any = None) -> None:
        if self._found is not None:
            self._restore(self._found[0])
            self.model._initial_epoch = self.epoch  # as Keras' BackupAndRestore does it
        self._saved, self._unsaved = time.monotonic(), 0
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._on_signal)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._found is None or epoch != self.epoch:
            return
        for row in self.history:  # of the epochs before
            self.model.history.epoch.append(int(row["epoch"]))
            for name, value in row.items():
                if name != "epoch":
                    self.model.history.history.setdefault(name, []).append(value)
        if self._state["batch"] > 0:
            self._skip(self._state["batch"])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._skipping:
            self._skipping = batch + 1 < self._state["batch"]
            return
        self._position = (self._position[0], batch + 1)
        self._unsaved += 1
        self._save_if_due()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs = {name: float(value) for name, value in (logs or {}).items()}
        self.history.append({"epoch": epoch, **logs})
        self._position = (epoch + 1, 0)
        self._save_if_due(last=epoch + 1 == self.params.get("epochs"))

    def on_train_end(self, logs: Any = None) -> None:
        self.model._initial_epoch = None
        self._restore_signals()

    def _save_if_due(self, last: bool = False) -> None:
        together = distribute.is_multi_worker(self.model.distribute_strategy)
        steps = WORKERS_STEPS if together and self.steps is None else self.steps
        long_ago = time.monotonic() - self._saved >= self._pause
        due = long_ago if steps is None else self._unsaved >= steps
        stop = self._signal is not None
        place = self.save() if due or last or (stop and not together) else None
        if self._signal is not None:
            self.on_train_end()
            raise Interrupted(place, *self._position, self._signal)

    def save(self) -> Path | None:
        """Write a checkpoint; None, and a warning, if that is not possible."""
        begin = time.monotonic()
        epoch, batch = self._position
        state = {
            "epoch": epoch,
            "batch": batch,
            "metrics": [np.asarray(v).tolist() for v in self._metrics()] if batch else [],
            "seeds": [np.asarray(v).tolist() for v in self._seeds()],
            "history": self.history,
            "replicas": self.model.distribute_strategy.num_replicas_in_sync,
        }
        place = None
        try:
            place = self._write(state)
        except (OSError, RuntimeError) as error:  # h5py raises either: training is worth more
            warnings.warn(
                f"No checkpoint could be written to {str(self.directory)!r}: {error}. Training "
                "goes on, and the last checkpoint is as it was.",
                stacklevel=2,
            )
        self._saved, self._unsaved = time.monotonic(), 0
        self._pause = max(self.seconds, 33.0 * (self._saved - begin))
        return place

    def _write(self, state: dict[str, Any]) -> Path | None:
        model = self.model
        buffer = getattr(model, "buffer", None)
        with nullcontext() if buffer is None else buffer.gathered():
            if distribute.worker(model.distribute_strategy) > 0:
                return None
            return checkpoints.write(self.directory, model.save, state, self.keep)

    def _restore(self, place: Path) -> None:
        model = self.model
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
        try:
            model.load_weights(place / checkpoints.MODEL)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{str(place)!r} is a checkpoint of another model: {error}") from error
        _assign(self._seeds(), self._state["seeds"])
        replicas = model.distribute_strategy.num_replicas_in_sync
        if replicas != self._state["replicas"]:
            warnings.warn(
                f"The checkpoint is of {self._state['replicas']} replicas, there are {replicas} "
                "now: chains are dealt to them anew, and training goes on, but not bit for bit.",
                stacklevel=2,
            )

    def _skip(self, batches: int) -> None:
        """Let the data of the next `batches` steps pass, and bring their metrics back."""
        model = self.model
        step = model.train_function
        calls = batches // model.steps_per_execution
        self._skipping = True
        done, logs = 0, {}

        def skip(iterator: Any) -> dict[str, Any]:
            nonlocal done, logs
            data = [next(iterator) for _ in range(model.steps_per_execution)]
            if not done:
                if model._compile_metrics is not None and not model._compile_metrics.built:
                    model._symbolic_build(data_batch=data[0])
                _assign(self._metrics(), self._state["metrics"])
                logs = model.get_metrics_result()
            done += 1
            if done == calls:
                model.train_function = step
            return logs

        model.train_function = skip

    def _metrics(self) -> list[Any]:
        return [v for metric in self.model.metrics for v in metric.variables]

    def _seeds(self) -> list[Any]:
        """The random counters of layers such as dropout, which Keras does not save."""
        known = {id(v) for v in (*self.model.weights, *self._metrics())}
        return [v for v in self.model.variables if id(v) not in known]

    def _on_signal(self, number: int, frame: Any) -> None:
        self._restore_signals()  # the next one is not for us
        if any(f.f_code.co_name == "fit" for f, _ in traceback.walk_stack(frame)):
            self._signal = number
        else:  # an error has ended `fit` without a word to its callbacks
            signal.raise_signal(number)

    def _restore_signals(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


def _assign(variables: list[Any], values: list[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(np.asarray(value))
