"""Resumes an interrupted run, bit for bit.

Not here: the files of a checkpoint (`_tf/checkpoints.py`), what a step does (`model/jem.py`).
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

from jem_tf._tf import checkpoints, distribution, private

MULTI_WORKER_STEPS = 200  # between two checkpoints with more than one worker


class TrainingInterrupted(KeyboardInterrupt):
    """Training was stopped by a signal; it can be resumed from `checkpoint`."""

    def __init__(self, checkpoint: Path | None, epoch: int, batch: int, number: int):
        self.checkpoint = checkpoint
        self.exit_code = 128 + number
        saved = "no checkpoint could be written" if checkpoint is None else f"saved {checkpoint}"
        super().__init__(f"Stopped after step {batch} of epoch {epoch + 1}: {saved}")


class Resume(keras.callbacks.Callback):
    """Saves checkpoints, and resumes from the newest one.

    ```python
    model.fit(rows, epochs=10, callbacks=[Resume("checkpoints")])    # both to start and to resume
    ```

    A checkpoint holds weights, optimizer, averaged weights, chains, counters, the metrics of the
    current epoch and the history. On one CPU device the weights of a resumed run are, bit for bit,
    those of a run without interruption, if the order of the data depends on the epoch only: use
    `Dataset.epochs(first=resume.epoch)` of `jem_tf.data`, or data that is not shuffled.

    SIGTERM and Ctrl-C save after the current step, and raise `TrainingInterrupted`; a second signal
    stops at once. A corrupt checkpoint is detected, and the one before it is used. With more than
    one worker, the chief writes and all workers read. They save every `steps` steps (default 200),
    as their clocks differ; a signal then stops without saving.

    Args:
        directory: of the checkpoints.
        seconds: time between two checkpoints; longer if saving took more than 3 % of it.
        steps: number of steps between two checkpoints, instead of `seconds`.
        keep: number of checkpoints to keep.
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
        checkpoint = checkpoints.newest(self.directory)
        self._checkpoint = checkpoint[0] if checkpoint else None
        self._state = checkpoint[1] if checkpoint else {}
        self.history: list[dict[str, Any]] = list(self._state.get("history", ()))
        self._position = (self.epoch, self._state.get("batch", 0))
        self._skipping = False
        self._signal: int | None = None
        self._previous_handlers: dict[int, Any] = {}
        self._pause = seconds

    @property
    def epoch(self) -> int:
        """The first epoch of this run: 0, or that of the checkpoint."""
        return self._state.get("epoch", 0)

    def on_train_begin(self, logs: Any = None) -> None:
        if self._checkpoint is not None:
            self._restore(self._checkpoint)
            private.set_initial_epoch(self.model, self.epoch)
        self._saved, self._unsaved = time.monotonic(), 0
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous_handlers[number] = signal.signal(number, self._on_signal)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._checkpoint is None or epoch != self.epoch:
            return
        for row in self.history:  # of earlier epochs
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
        private.set_initial_epoch(self.model, None)
        self._restore_signals()

    def _save_if_due(self, last: bool = False) -> None:
        multi_worker = distribution.is_multi_worker(self.model.distribute_strategy)
        steps = MULTI_WORKER_STEPS if multi_worker and self.steps is None else self.steps
        timed_out = time.monotonic() - self._saved >= self._pause
        due = timed_out if steps is None else self._unsaved >= steps
        stop = self._signal is not None
        checkpoint = self.save() if due or last or (stop and not multi_worker) else None
        if self._signal is not None:
            self.on_train_end()
            raise TrainingInterrupted(checkpoint, *self._position, self._signal)

    def save(self) -> Path | None:
        """Write a checkpoint and return its path; warn and return None if that is not possible."""
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
        checkpoint = None
        try:
            checkpoint = self._write(state)
        except (OSError, RuntimeError) as error:  # h5py raises either; training must not stop
            warnings.warn(
                f"No checkpoint could be written to {str(self.directory)!r}: {error}. Training "
                "continues, and the last checkpoint is unchanged.",
                stacklevel=2,
            )
        self._saved, self._unsaved = time.monotonic(), 0
        self._pause = max(self.seconds, 33.0 * (self._saved - begin))
        return checkpoint

    def _write(self, state: dict[str, Any]) -> Path | None:
        model = self.model
        buffer = getattr(model, "buffer", None)
        with nullcontext() if buffer is None else buffer.gathered():
            if distribution.worker_index(model.distribute_strategy) > 0:
                return None
            return checkpoints.write(self.directory, model.save, state, self.keep)

    def _restore(self, checkpoint: Path) -> None:
        model = self.model
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
        try:
            model.load_weights(checkpoint / checkpoints.MODEL)
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"{str(checkpoint)!r} is a checkpoint of another model: {error}"
            ) from error
        _assign(self._seeds(), self._state["seeds"])
        replicas = model.distribute_strategy.num_replicas_in_sync
        if replicas != self._state["replicas"]:
            warnings.warn(
                f"The checkpoint was written by {self._state['replicas']} replicas, and there are "
                f"{replicas} now: chains are redistributed, and training continues, but not bit "
                "for bit.",
                stacklevel=2,
            )

    def _skip(self, batches: int) -> None:
        """Skip the data of the next `batches` steps, and restore their metrics."""
        model = self.model
        step = model.train_function
        calls = batches // model.steps_per_execution
        self._skipping = True
        done, logs = 0, {}

        def skip(iterator: Any) -> dict[str, Any]:
            nonlocal done, logs
            data = [next(iterator) for _ in range(model.steps_per_execution)]
            if not done:
                private.build_compiled_metrics(model, data[0])
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
        saved = {id(v) for v in (*self.model.weights, *self._metrics())}
        return [v for v in self.model.variables if id(v) not in saved]

    def _on_signal(self, number: int, frame: Any) -> None:
        self._restore_signals()  # a second signal has its default effect
        if any(f.f_code.co_name == "fit" for f, _ in traceback.walk_stack(frame)):
            self._signal = number
        else:  # an error has ended `fit` without calling its callbacks
            signal.raise_signal(number)

    def _restore_signals(self) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}


def _assign(variables: list[Any], values: list[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(np.asarray(value))
