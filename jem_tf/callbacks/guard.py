"""A training that falls ill is taken back to when it was well, and goes on more carefully.

Not here: the vital signs (`watching.py`). Steps that are not finite never reach the weights, with
or without this guard.
"""

import json
import math
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.state import components
from jem_tf.model.jem import JEM

GRACE = 4  # checks in which a new network may still be worse than guessing
LEFT = "chains have left the range of the data"
STUCK = "chains are stuck, far below the data"
AHEAD = "samples are far more likely than the data"


class DivergenceGuard(keras.callbacks.Callback):
    """Heals a diverging training of a `JEM`, without anyone's help.

    ```python
    model.fit(x, y, callbacks=[Resume("checkpoints"), DivergenceGuard(log="events.jsonl")])
    ```

    Every `every` steps it looks at the model's `vitals()`. After `patience` bad readings in a row
    it takes weights, optimizer and chains back to a snapshot of better days, and lets training
    go on with new random numbers and a lower learning rate, which then recovers to half of what
    it was. A step size of the sampler that does not tune itself is changed where it may be to
    blame, and alone where it is too large for the network as it was.
    Troubles that return are answered by older snapshots and lower rates, `attempts` times; then
    training stops. Steps are not repeated: the run takes as long as it would have.

    Args:
        every: steps between two looks.
        patience: bad readings in a row that make a divergence.
        attempts: how often training may be taken back.
        log: a file to which each event is added as a line of JSON.
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
                    cooling=np.float32(1),  # of the learning rate, now
                    ceiling=np.float32(1),  # and when it has recovered
                    strikes=np.int64(0),  # bad readings in a row
                    checks=np.int64(0),  # good ones since the last event
                    rollbacks=np.int64(0),
                    depth=np.int64(0),  # of them since training was well for long
                    best=np.float32(math.inf),  # the lowest cross-entropy
                    seen=np.int64(0),  # steps left out, that were reported
                )
        self._cool_schedule()
        self._snapshots: list[list[tuple[tf.Variable, tf.Tensor]]] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._snapshots:  # now that whoever restores a training has done so
            self._cooled = self._number("cooling")  # what a rate without schedule has in it
            self._step = self._number("step")
            self._snapshots = [self._snapshot()] * 3

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        step = self._number("step")
        if step // self.every == self._step // self.every:
            return
        self._step = step
        skipped = self._number("skipped") - self._number("seen")
        vitals = self.model.vitals()
        illness = self._diagnose(vitals, skipped)
        if skipped:
            self._report("skipped", f"{skipped} updates were not finite and left out", vitals)
            self.model.progress.assign(seen=np.int64(self._number("skipped")))
        if illness is None:
            self._recover(vitals)
            return
        self.model.progress.assign(strikes=np.int64(self._number("strikes") + 1))
        if self._number("strikes") >= self.patience:
            self._roll_back(illness, vitals)

    def _diagnose(self, vitals: dict[str, float], skipped: int) -> str | None:
        """What is wrong, in words."""
        guessing = math.log(self.model.num_classes)
        learned = self._number("best") < 1.5 * guessing
        settled = learned or self._number("checks") * self._number("ceiling") >= GRACE
        if 2 * skipped > self.every:
            return "most updates are not finite"
        if vitals["extent"] > 3.0:
            return LEFT
        if vitals["gap"] > 50.0:
            return AHEAD
        if vitals["trusted"] < 0.5 or vitals["gap"] < -100.0:
            return STUCK
        if settled and vitals["cross_entropy"] > 1.5 * guessing:
            return "the classifier is worse than guessing"
        if vitals["cross_entropy"] > self._number("best") + 0.5 * guessing:
            return "the classifier has unlearned its classes"
        return None

    def _recover(self, vitals: dict[str, float]) -> None:
        number = self._number
        checks = number("checks") + 1
        self.model.progress.assign(
            strikes=np.int64(0),
            checks=np.int64(checks),
            best=np.float32(min(number("best"), vitals["cross_entropy"])),
            depth=np.int64(0 if checks >= 20 else number("depth")),
        )
        self._cool(min(number("ceiling"), number("cooling") * 1.2))
        if checks % 4 == 0:  # an illness may be older than its signs: keep older copies too
            newest, older, oldest = self._snapshots
            self._snapshots = [
                self._snapshot(),
                newest if checks % 16 == 0 else older,
                older if checks % 64 == 0 else oldest,
            ]

    def _roll_back(self, illness: str, vitals: dict[str, float]) -> None:
        number = self._number
        last = number("rollbacks") + 1 >= self.attempts
        depth = min(number("depth") + 1, len(self._snapshots))
        self._snapshots[:depth] = self._snapshots[depth - 1 : depth] * depth  # the others were ill
        for variable, value in self._snapshots[0]:
            variable.assign(value)
        factor = self._step_factor(illness, vitals)
        # Steps too large for the network as it was before are to blame, and no learning rate.
        sampler_only = factor < 0.5 and number("depth") < 2
        ceiling = number("ceiling") / (1.0 if sampler_only else 2.0)
        cooled = number("cooling") if sampler_only else ceiling / 5.0
        self.model.progress.assign(
            ceiling=np.float32(ceiling),
            strikes=np.int64(0),
            checks=np.int64(0),
            rollbacks=np.int64(number("rollbacks") + 1),
            depth=np.int64(depth),
            step_size=np.float32(number("step_size") * factor),
        )
        self.model.forget_vitals()
        self._cool(cooled)
        answer = ["taken back"]
        if not sampler_only:
            answer.append(f"learning rate x {cooled:.2g} recovering to x {ceiling:.2g}")
        if factor != 1.0:
            answer.append(f"sampler steps x {factor:.2g}")
        if last:
            answer = ["stopped, in an earlier state"]
        self._report("divergence", f"{illness}: {', '.join(answer)}", vitals)
        if last:
            self.model.stop_training = True

    def _step_factor(self, illness: str, vitals: dict[str, float]) -> float:
        """How to change a step size that does not tune itself: smaller where chains run away or
        step across the peaks, larger where noise drives them, or they climb but lag."""
        sampler = self.model.sampler
        if sampler.tunes or "climbing" not in sampler.diagnostics:
            return 1.0
        if illness in (LEFT, AHEAD):
            now = float(sampler.step_size_at(tf.constant(0), self._number("step_size")))
            return min(0.5, self.model.careful_step_size() / now)
        if illness != STUCK:
            return 1.0
        noise = 0.0 if isinstance(sampler.noise, str) else sampler.noise * sampler.steps**0.5
        across = vitals["climbing"] < 0.97 and vitals["displacement"] > 2.0 * noise
        return 0.5 if across else 2.0

    def _report(self, kind: str, message: str, vitals: dict[str, float]) -> None:
        event = {"step": self._step, "event": kind, "message": message, "vitals": vitals}
        self.events.append(event)
        print(f"\nStep {self._step}: {message}", flush=True)
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(json.dumps({**event, "time": time.time()}) + "\n")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is not None:
            logs["rollbacks"] = float(self._number("rollbacks"))

    def _number(self, name: str) -> Any:
        return components(self.model.progress[name])[0].numpy().item()

    def _snapshot(self) -> list[tuple[tf.Variable, tf.Tensor]]:
        """Copies of what training changes, but for its clocks and this guard's memory."""
        model = self.model
        optimizer = _inner(model.optimizer)
        clocks = {id(optimizer.iterations), id(optimizer._learning_rate)}
        kept = [v for v in model.optimizer.variables if id(v) not in clocks]
        variables = [v.value for v in (*model.weights, *kept)]
        variables += [*model.buffer.tf_variables, model.progress["best"]]
        if model.sampler.tunes:  # else it is this guard that changes it
            variables.append(model.progress["step_size"])
        with tf.device("CPU:0"):  # memory of accelerators is scarce
            return [(part, tf.identity(part)) for v in variables for part in components(v)]

    def _cool_schedule(self) -> None:
        """Let a scheduled learning rate be what it would be, times `cooling`."""
        optimizer, cooling = _inner(self.model.optimizer), self.model.progress["cooling"]
        rate = optimizer._learning_rate
        if not isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            return
        if not isinstance(rate, Cooled) or rate.factor is not cooling:
            schedule = rate.schedule if isinstance(rate, Cooled) else rate
            optimizer.learning_rate = Cooled(schedule, cooling)
            self.model.make_train_function(force=True)

    def _cool(self, factor: float) -> None:
        """Let the learning rate be `factor` of what it would be."""
        self.model.progress.assign(cooling=np.float32(factor))
        rate = _inner(self.model.optimizer)._learning_rate
        if not isinstance(rate, Cooled) and factor != self._cooled:
            rate.assign(rate.numpy() * factor / self._cooled)
        self._cooled = factor


def _inner(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", optimizer)


@keras.saving.register_keras_serializable("jem_tf")
class Cooled(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule times a factor that is kept elsewhere."""

    def __init__(self, schedule: Any, factor: Any = 1.0):
        super().__init__()
        if isinstance(schedule, dict):  # as `get_config` writes it
            schedule = keras.saving.deserialize_keras_object(schedule)
        self.schedule, self.factor = schedule, factor

    def __call__(self, step: Any) -> Any:
        return self.schedule(step) * self.factor

    def get_config(self) -> dict[str, Any]:
        return {"schedule": keras.saving.serialize_keras_object(self.schedule)}
