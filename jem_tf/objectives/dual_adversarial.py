"""Dual adversarial training (Yin et al., 2025): energies without chains.

    E: log sigmoid f(x) + log sigmoid -f(x'),    x' by gradient ascent on f from noise
    y: cross-entropy at the worst point near x

With SGLD, the gradient is right only if the negatives are samples of the model. Here x' only needs
to be an input that f mistakes for data. Training cannot diverge: the slope of a logistic loss is
bounded.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.checks import check_not_negative, check_positive, check_positive_integer
from jem_tf.objectives.base import Batch, Objective, Terms, TrainingModel, regularisation
from jem_tf.objectives.nce import discriminate


@keras.saving.register_keras_serializable("jem_tf")
class DualAdversarial(Objective):
    """A logistic loss between data and adversarial negatives, and robust cross-entropy.

    ```python
    JEM(backbone, objective=DualAdversarial(steps=10, radius=0.03))
    ```

    Args:
        weight: of the logistic loss, beside cross-entropy.
        steps: of gradient ascent on f, for negatives that begin at the model's `start`.
        step_size: length of such a step, in half ranges, for an input with one value; for D values
            it is sqrt(D) times that.
        radius: largest distance of the worst point near x, in the same unit; 0 means x itself.
        attack_steps: gradient steps to find that point.
    """

    logged = ("generative_loss", "discriminator_accuracy")

    def __init__(
        self,
        weight: float = 1.0,
        steps: int = 10,
        step_size: float = 0.05,
        radius: float = 0.03,
        attack_steps: int = 2,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_positive_integer("steps", steps)
        check_positive_integer("attack_steps", attack_steps)
        check_positive("step_size", step_size)
        check_not_negative(weight=weight, radius=radius)
        self.settings: dict[str, Any] = {
            "weight": float(weight),
            "steps": int(steps),
            "step_size": float(step_size),
            "radius": float(radius),
            "attack_steps": int(attack_steps),
        }

    def negatives(self, model: TrainingModel, batch: Batch, seeds: list[tf.Tensor]) -> tf.Tensor:
        """Move noise uphill until f takes it for data."""
        scale = model.input_range.scale
        x = model.start.draw(tf.shape(batch.x)[0], seeds[0]) / scale
        density = model.unit_log_density(None)
        return scale * self._ascend(density, x, self.settings["steps"], self.settings["step_size"])

    def loss(self, model: TrainingModel, batch: Batch, negatives: tf.Tensor) -> Terms:
        n = tf.shape(batch.x)[0]
        adversarial = self._attack(model, batch)
        f = model.logits(tf.concat([batch.x, negatives, adversarial], axis=0))
        logits = f[2 * n :] if model.one_pass else model.classifier_logits(adversarial)
        classification, cross_entropy = self.cross_entropy(model, batch, logits)
        weight = tf.concat([batch.weight, tf.ones([n])], axis=0)
        logistic = discriminate(model, maths.log_density(f[: 2 * n]), n, weight)
        loss = classification + self.settings["weight"] * logistic + regularisation(model)
        return Terms(loss, f[:n], {"cross_entropy": cross_entropy})

    def _attack(self, model: TrainingModel, batch: Batch) -> tf.Tensor:
        """Search the point within `radius` of x where the true label is least likely."""
        radius, steps = self.settings["radius"], self.settings["attack_steps"]
        if radius == 0:
            return batch.x
        scale = model.input_range.scale

        def cross_entropy(unit: tf.Tensor) -> tf.Tensor:
            log_p = maths.conditional_log_probability(model.logits(unit * scale))
            return -tf.reduce_sum(batch.targets * log_p, axis=-1)

        start = batch.x / scale
        moved = self._ascend(cross_entropy, start, steps, 1.5 * radius / steps)
        change = moved - start
        limit = radius * tf.sqrt(tf.cast(tf.size(start[0]), tf.float32))
        factor = tf.minimum(1.0, limit / tf.maximum(_length(change), 1e-12))
        return tf.stop_gradient((start + change * factor) * scale)

    def _ascend(self, function: Any, x: tf.Tensor, steps: int, size: float) -> tf.Tensor:
        """Take `steps` of length `size` uphill; none where the gradient is zero."""
        length = size * tf.sqrt(tf.cast(tf.size(x[0]), tf.float32))

        def step(index: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            direction = maths.gradient(function, x)
            return index + 1, x + length * direction / tf.maximum(_length(direction), 1e-12)

        _, x = tf.while_loop(
            lambda index, _: index < steps, step, (tf.constant(0), x), parallel_iterations=1
        )
        return tf.stop_gradient(x)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.settings}


def _length(x: tf.Tensor) -> tf.Tensor:
    """The length of each row, in a shape that broadcasts over `x`."""
    squares = tf.reduce_sum(tf.reshape(x**2, [tf.shape(x)[0], -1]), axis=1)
    return tf.reshape(tf.sqrt(squares), [-1] + [1] * (len(x.shape) - 1))
