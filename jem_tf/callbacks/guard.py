"""Rolls a diverging run back to a healthy snapshot, and continues with a lower learning rate.

Not here: the vital signs (`model/health.py`). Non-finite updates never reach the weights, with or
without this guard.
"""

import json
import math
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.private import inner_optimizer, learning_rate
from jem_tf._tf.state import replica_components
from jem_tf.callbacks.schedules import Cooled
from jem_tf.model import JEM
from jem_tf.model.fitting import suitable_step_size

GRACE_CHECKS = 4  # in which a new network may still be worse than guessing
LEFT_RANGE = "chains have left the range of the data"
STUCK = "chains are stuck, far below the data"
TOO_LIKELY = "samples are far more likely than the data"


class DivergenceGuard(keras.callbacks.Callback):
    """Detects that the training of a `JEM` diverges, and recovers without manual intervention.

    ```python
    model.fit(x, y, callbacks=[Resume("checkpoints"), DivergenceGuard(log="events.jsonl")])
    ```

    Every `every` steps it reads `model.health.vitals()`. After `patience` bad readings in a row it
    restores weights, optimizer and chains from an earlier snapshot. Training continues with new
    random numbers and a lower learning rate, which then recovers to half of its former value. The
    step size of a sampler that does not tune itself is changed where it may be the cause, and
    alone where it is too large for the restored network. Repeated divergence leads to older
    snapshots and lower rates, at most `attempts` times; then training stops. Steps are not
    repeated: the run takes as long as it would have.

    Args:
        every: steps between two readings.
        patience: bad readings in a row that count as divergence.
        attempts: largest number of rollbacks.
        log: a file to which each event is appended as a line of JSON.
    """

    def __init__(
        self,
        every: int = 50,
        patience: int = 2,
        attempts: int = 10,
        log: str | Path | None = None,
    ):
        super().__init__()
        if min(every, patience, attempts) < 1:
            raise ValueError(
                "`every`, `patience` and `attempts` must be positive. Received: "
                f"every={every!r}, patience={patience!r}, attempts={attempts!r}"
            )
        self.every, self.patience, self.attempts = every, patience, attempts
        self.log = None if log is None else Path(log)
        self.events: list[dict[str, Any]] = []

    def on_train_begin(self, logs: Any = None) -> None:
        if not isinstance(self.model, JEM):
            raise TypeError(f"DivergenceGuard watches a JEM. Received: {self.model!r}")
        progress = self.model.progress
        if "cooling" not in progress:
            with self.model.distribute_strategy.scope():
                progress.assign(
                    cooling=np.float32(1),  # present factor of the learning rate
                    ceiling=np.float32(1),  # the factor once it has recovered
                    strikes=np.int64(0),  # bad readings in a row
                    checks=np.int64(0),  # good readings since the last event
                    rollbacks=np.int64(0),
                    depth=np.int64(0),  # rollbacks since training was last healthy for long
                    best=np.float32(math.inf),  # the lowest cross-entropy
                    seen=np.int64(0),  # skipped steps that have been reported
                )
        self._wrap_schedule()
        self._snapshots: list[list[tuple[tf.Variable, tf.Tensor]]] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._snapshots:  # here, after `Resume` has restored a checkpoint
            self._applied_factor = self._number("cooling")  # part of a rate without a schedule
            self._step = self._number("step")
            self._snapshots = [self._snapshot()] * 3

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        step = self._number("step")
        if step // self.every == self._step // self.every:
            return
        self._step = step
        skipped = self._number("skipped") - self._number("seen")
        vitals = self.model.health.vitals()
        problem = self._diagnose(vitals, skipped)
        if skipped:
            self._report("skipped", f"skipped {skipped} non-finite updates", vitals)
            self.model.progress.assign(seen=np.int64(self._number("skipped")))
        if problem is None:
            self._recover(vitals)
            return
        self.model.progress.assign(strikes=np.int64(self._number("strikes") + 1))
        if self._number("strikes") >= self.patience:
            self._roll_back(problem, vitals)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["rollbacks"] = float(self._number("rollbacks"))

    def _diagnose(self, vitals: dict[str, float], skipped: int) -> str | None:
        """What is wrong, in words; None if nothing is."""
        guessing = math.log(self.model.num_classes)
        learned = self._number("best") < 1.5 * guessing
        settled = learned or self._number("checks") * self._number("ceiling") >= GRACE_CHECKS
        if 2 * skipped > self.every:
            return "most updates are non-finite"
        if vitals["extent"] > 3.0:
            return LEFT_RANGE
        if self._number("step") >= self.model.objective.ramp:  # before, it is not a density yet
            if min(vitals["gap"], vitals["relative_gap"]) > 5.0:
                return TOO_LIKELY
            if vitals["trusted"] < 0.5 or vitals["relative_gap"] < -20.0:
                return STUCK
        if settled and vitals["cross_entropy"] > 1.5 * guessing:
            return "the classifier is worse than guessing"
        if vitals["cross_entropy"] > self._number("best") + 0.5 * guessing:
            return "the classifier has forgotten its classes"
        return None

    def _recover(self, vitals: dict[str, float]) -> None:
        """After a good reading: raise the learning rate, and take a snapshot if one is due."""
        number = self._number
        checks = number("checks") + 1
        self.model.progress.assign(
            strikes=np.int64(0),
            checks=np.int64(checks),
            best=np.float32(min(number("best"), vitals["cross_entropy"])),
            depth=np.int64(0 if checks >= 20 else number("depth")),
        )
        self._cool(min(number("ceiling"), number("cooling") * 1.2))
        if checks % 4 == 0:  # divergence may begin before its signs: keep older copies too
            newest, older, oldest = self._snapshots
            self._snapshots = [
                self._snapshot(),
                newest if checks % 16 == 0 else older,
                older if checks % 64 == 0 else oldest,
            ]

    def _roll_back(self, problem: str, vitals: dict[str, float]) -> None:
        """Restore a snapshot, lower the learning rate or change the step size, and report it."""
        number = self._number
        last = number("rollbacks") + 1 >= self.attempts
        depth = min(number("depth") + 1, len(self._snapshots))
        self._snapshots[:depth] = self._snapshots[depth - 1 : depth] * depth  # newer ones diverged
        for variable, value in self._snapshots[0]:
            variable.assign(value)
        factor = self._step_size_factor(problem, vitals)
        # The cause is a step size that is too large for the restored network, and not the rate.
        sampler_only = factor < 0.5 and number("depth") < 2
        ceiling = number("ceiling") / (1.0 if sampler_only else 2.0)
        cooling = number("cooling") if sampler_only else ceiling / 5.0
        self.model.progress.assign(
            ceiling=np.float32(ceiling),
            strikes=np.int64(0),
            checks=np.int64(0),
            rollbacks=np.int64(number("rollbacks") + 1),
            depth=np.int64(depth),
            step_size=np.float32(number("step_size") * factor),
        )
        self.model.health.reset()
        self._cool(cooling)
        actions = ["rolled back"]
        if not sampler_only:
            actions.append(f"learning rate x {cooling:.2g}, recovering to x {ceiling:.2g}")
        if factor != 1.0:
            actions.append(f"sampler steps x {factor:.2g}")
        if last:
            actions = ["stopped, in an earlier state"]
        self._report("divergence", f"{problem}: {', '.join(actions)}", vitals)
        if last:
            self.model.stop_training = True

    def _step_size_factor(self, problem: str, vitals: dict[str, float]) -> float:
        """How to change a step size that does not tune itself: smaller if chains run away or step
        across the peaks, larger if noise dominates, or if chains climb but stay behind."""
        sampler = self.model.sampler
        if sampler.tunes or "stiffness" not in sampler.diagnostics:
            return 1.0
        if problem in (LEFT_RANGE, TOO_LIKELY):
            present = float(sampler.step_size_at(tf.constant(0), self._number("step_size")))
            return min(0.5, suitable_step_size(self.model) / present)
        if problem != STUCK:
            return 1.0
        return 0.5 if vitals["acceptance"] < 0.5 else 2.0

    def _report(self, kind: str, message: str, vitals: dict[str, float]) -> None:
        event = {"step": self._step, "event": kind, "message": message, "vitals": vitals}
        self.events.append(event)
        print(f"\nStep {self._step}: {message}", flush=True)
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(json.dumps({**event, "time": time.time()}) + "\n")

    def _number(self, name: str) -> Any:
        return self.model.progress.number(name)

    def _snapshot(self) -> list[tuple[tf.Variable, tf.Tensor]]:
        """Copies of what training changes, except its counters and the state of this guard."""
        model = self.model
        optimizer = inner_optimizer(model.optimizer)
        counters = {id(optimizer.iterations), id(learning_rate(optimizer))}
        kept = [v for v in model.optimizer.variables if id(v) not in counters]
        variables = [v.value for v in (*model.weights, *kept)]
        variables += [*model.buffer.tf_variables, model.progress["best"]]
        if model.sampler.tunes:  # otherwise this guard changes the step size
            variables.append(model.progress["step_size"])
        with tf.device("CPU:0"):  # memory of accelerators is scarce
            return [(part, tf.identity(part)) for v in variables for part in replica_components(v)]

    def _wrap_schedule(self) -> None:
        """Multiply a scheduled learning rate by the variable `cooling`."""
        optimizer, cooling = inner_optimizer(self.model.optimizer), self.model.progress["cooling"]
        rate = learning_rate(optimizer)
        if not isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            return
        if not isinstance(rate, Cooled) or rate.factor is not cooling:
            schedule = rate.schedule if isinstance(rate, Cooled) else rate
            optimizer.learning_rate = Cooled(schedule, cooling)
            self.model.make_train_function(force=True)

    def _cool(self, factor: float) -> None:
        """Set the learning rate to `factor` times its value without this guard."""
        self.model.progress.assign(cooling=np.float32(factor))
        rate = learning_rate(self.model.optimizer)
        if not isinstance(rate, Cooled) and factor != self._applied_factor:
            rate.assign(rate.numpy() * factor / self._applied_factor)
        self._applied_factor = factor
