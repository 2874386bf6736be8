"""Dual adversarial training (Yin et al., 2025): energies without chains.

    stage 1: cross-entropy at the worst point near x
    stage 2: the same, and -log sigmoid f(x)[y] - log sigmoid -f(x')[y]

x' starts as noise and ascends f(x')[y]. It takes one step at first, and one more each time that f
has learned to separate x' from data.

With SGLD, the gradient is right only if the negatives are samples of the model. Here x' only needs
to be an input that f mistakes for data. Training cannot diverge: the slope of a logistic loss is
bounded.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.checks import check_not_negative, check_positive, check_positive_integer
from jem_tf.objectives.adversarial import ascend, worst_points
from jem_tf.objectives.base import Batch, Objective, Terms, TrainingModel, regularisation
from jem_tf.objectives.nce import discriminate

CHANCE = 0.5  # accuracy of a discriminator that cannot separate data and negatives
RATE = 0.1  # of the moving mean of the accuracy


@keras.saving.register_keras_serializable("jem_tf")
class DualAdversarial(Objective):
    """Robust cross-entropy, then also a logistic loss between data and adversarial negatives.

    ```python
    JEM(backbone, objective=DualAdversarial(warmup=2000, steps=10, radius=0.03))
    ```

    The gradient norm of such a model is often larger at data than elsewhere, so that it is no score
    for detection: use `log_density`.

    Args:
        weight: of the logistic loss, beside cross-entropy.
        steps: largest number of steps of gradient ascent, for negatives that begin at the model's
            `start`.
        step_size: length of such a step, in half ranges, for an input with one value; for D values
            it is sqrt(D) times that.
        radius: largest distance of the worst point near x, in the same unit; 0 means x itself.
        attack_steps: gradient steps to find that point.
        warmup: training steps of stage 1.
        threshold: accuracy of the discriminator above which negatives take one more step.
    """

    logged = ("generative_loss", "discriminator_accuracy", "ascent_steps")

    def __init__(
        self,
        weight: float = 1.0,
        steps: int = 10,
        step_size: float = 0.05,
        radius: float = 0.03,
        attack_steps: int = 2,
        warmup: int = 500,
        threshold: float = 0.8,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_positive_integer("steps", steps)
        check_positive_integer("attack_steps", attack_steps)
        check_positive("step_size", step_size)
        check_not_negative(weight=weight, radius=radius, warmup=warmup)
        if not CHANCE < threshold < 1:
            raise ValueError(
                f"`threshold` must be between {CHANCE} and 1. Received: threshold={threshold}"
            )
        self.settings: dict[str, Any] = {
            "weight": float(weight),
            "steps": int(steps),
            "step_size": float(step_size),
            "radius": float(radius),
            "attack_steps": int(attack_steps),
            "warmup": int(warmup),
            "threshold": float(threshold),
        }

    def prepare(self, model: TrainingModel, summary: Any) -> None:
        if "steps" not in self:
            self.assign(steps=np.int32(1), accuracy=np.float32(CHANCE))

    def negatives(self, model: TrainingModel, batch: Batch, seeds: list[tf.Tensor]) -> tf.Tensor:
        """Move noise uphill, one row for each row of data and its class; no rows in stage 1."""
        rows = tf.where(self._second_stage(model), tf.shape(batch.x)[0], 0)
        targets, scale = batch.targets[:rows], model.input_range.scale

        def density(unit: tf.Tensor) -> tf.Tensor:
            return joint_log_density(model.logits(unit * scale), targets)

        x = model.start.draw(rows, seeds[0]) / scale
        steps = tf.where(rows > 0, self["steps"], 0)
        return scale * ascend(density, x, steps, self.settings["step_size"])

    def loss(self, model: TrainingModel, batch: Batch, negatives: tf.Tensor) -> Terms:
        n, rows = tf.shape(batch.x)[0], tf.shape(negatives)[0]
        adversarial = self._attack(model, batch)
        f = model.logits(tf.concat([batch.x, negatives, adversarial], axis=0))
        logits = f[n + rows :] if model.one_pass else model.training_logits(adversarial)
        classification, cross_entropy = self.cross_entropy(model, batch, logits)
        targets = tf.concat([batch.targets, batch.targets[:rows]], axis=0)
        scores = joint_log_density(f[: n + rows], targets)
        of_data = tf.where(self._second_stage(model), batch.weight, 0.0)
        weight = tf.concat([of_data, tf.ones([rows])], axis=0)
        logistic, accuracy = discriminate(model, scores, n, weight)
        loss = classification + self.settings["weight"] * logistic + regularisation(model)
        vitals = {"cross_entropy": cross_entropy, "discriminator_accuracy": accuracy}
        return Terms(loss, f[:n], vitals)

    def after_update(self, model: TrainingModel, negatives: tf.Tensor, terms: Terms) -> None:
        """Let negatives take one more step if the discriminator has been accurate."""
        super().after_update(model, negatives, terms)
        change = RATE * (terms.vitals["discriminator_accuracy"] - self["accuracy"])
        mean = self["accuracy"] + tf.where(self._second_stage(model), change, 0.0)
        wins = mean > self.settings["threshold"]
        steps = tf.minimum(self["steps"] + tf.cast(wins, tf.int32), self.settings["steps"])
        self["steps"].assign(steps)
        self["accuracy"].assign(tf.where(wins, CHANCE, mean))
        model.log(ascent_steps=tf.cast(steps, tf.float32))

    def unfinished(self, model: TrainingModel) -> str | None:
        step, warmup = model.progress.number("step"), self.settings["warmup"]
        if step > warmup:
            return None
        return (
            f"Energies are not learned: training ended after {step} steps, and they begin after "
            f"`warmup`={warmup}."
        )

    def _second_stage(self, model: TrainingModel) -> tf.Tensor:
        return model.progress["step"] >= self.settings["warmup"]

    def _attack(self, model: TrainingModel, batch: Batch) -> tf.Tensor:
        radius, steps = self.settings["radius"], self.settings["attack_steps"]
        return worst_points(model, model.augmented(batch.x), batch.targets, radius, steps)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.settings}


def joint_log_density(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """f(x)[y] of rows with a class, log p(x) + log Z of rows without one; `[batch]`."""
    joint = tf.reduce_sum(targets * tf.cast(logits, tf.float32), axis=-1)
    return tf.where(tf.reduce_sum(targets, axis=-1) > 0, joint, maths.log_density(logits))
