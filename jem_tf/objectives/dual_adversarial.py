"""Dual adversarial training (Yin et al., 2025): energies without chains.

    E: log sigmoid f(x) + log sigmoid -f(x'),    x' made by gradient ascent on f from noise
    y: cross-entropy at the worst point near x

Where SGLD's samples must be samples for the gradient to be right, x' need only be what f wrongly
takes for data, so nothing can diverge: a logistic loss has bounded slopes.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.objectives.objective import Batch, Objective, Terms, mean_over_replicas, penalty
from jem_tf.sampling.base import check_positive, check_steps


@keras.saving.register_keras_serializable("jem_tf")
class DualAdversarial(Objective):
    """A logistic loss between data and inputs made to look like data, and robust cross-entropy.

    Args:
        weight: of the logistic loss, beside cross-entropy.
        steps: of gradient ascent towards larger f, for inputs that start from the model's `start`.
        step_size: length of such a step, in half ranges, for an input with one value; with D values
            it is sqrt(D) times that.
        radius: how far, in the same unit, the worst point near x may be; 0: x itself.
        attack_steps: to find that point.
    """

    logged = ("generative_loss", "told_apart")

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
        check_steps(steps)
        check_steps(attack_steps)
        check_positive("step_size", step_size)
        if not weight >= 0 or not radius >= 0:
            raise ValueError(
                "`weight` and `radius` must not be negative. "
                f"Received: weight={weight!r}, radius={radius!r}"
            )
        self.settings: dict[str, Any] = {
            "weight": float(weight),
            "steps": int(steps),
            "step_size": float(step_size),
            "radius": float(radius),
            "attack_steps": int(attack_steps),
        }

    def contrast(self, model: Any, batch: Batch, seeds: list[tf.Tensor]) -> tf.Tensor:
        """Inputs that began as noise, and that f takes for data."""
        scale = model.start.scale
        x = model.start.draw(tf.shape(batch.x)[0], seeds[0]) / scale
        density = model.unit_log_density(None)
        return scale * self._ascend(density, x, self.settings["steps"], self.settings["step_size"])

    def loss(self, model: Any, batch: Batch, x: tf.Tensor, contrast: tf.Tensor) -> Terms:
        n = tf.shape(x)[0]
        near = self._worst(model, batch, x)
        f = model.logits(tf.concat([x, contrast, near], axis=0))
        logits = f[2 * n :] if model.one_pass else model.classified(near)
        clf, mean = self.cross_entropy(model, batch, logits)
        density = maths.log_density(f[: 2 * n])
        wrong = tf.nn.softplus(tf.concat([-density[:n], density[n:]], axis=0))
        weight = tf.concat([batch.weight, tf.ones([n])], axis=0)
        part = 2.0 * mean_over_replicas(wrong, weight)
        right = tf.cast(tf.concat([density[:n] > 0, density[n:] <= 0], axis=0), tf.float32)
        model.log(weight, generative_loss=2.0 * wrong, told_apart=right)
        loss = clf + self.settings["weight"] * part + penalty(model)
        return Terms(loss, f[:n], {"cross_entropy": mean})

    def _worst(self, model: Any, batch: Batch, x: tf.Tensor) -> tf.Tensor:
        """The point within `radius` of x where the right label is least likely, about."""
        radius, steps = self.settings["radius"], self.settings["attack_steps"]
        if radius == 0:
            return x
        scale = model.start.scale

        def wrong(unit: tf.Tensor) -> tf.Tensor:
            log_p = maths.conditional_log_probability(model.logits(unit * scale))
            return -tf.reduce_sum(batch.targets * log_p, axis=-1)

        start = x / scale
        moved = self._ascend(wrong, start, steps, 1.5 * radius / steps)
        away = moved - start
        limit = radius * tf.sqrt(tf.cast(tf.size(start[0]), tf.float32))
        factor = tf.minimum(1.0, limit / tf.maximum(_length(away), 1e-12))
        return tf.stop_gradient((start + away * factor) * scale)

    def _ascend(self, function: Any, x: tf.Tensor, steps: int, size: float) -> tf.Tensor:
        """`steps` of length `size` uphill; none where there is no slope."""
        length = size * tf.sqrt(tf.cast(tf.size(x[0]), tf.float32))

        def step(index: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            slope = maths.gradient(function, x)
            return index + 1, x + length * slope / tf.maximum(_length(slope), 1e-12)

        _, x = tf.while_loop(
            lambda index, _: index < steps, step, (tf.constant(0), x), parallel_iterations=1
        )
        return tf.stop_gradient(x)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.settings}


def _length(x: tf.Tensor) -> tf.Tensor:
    """The length of each row, shaped to divide it."""
    squares = tf.reduce_sum(tf.reshape(x**2, [tf.shape(x)[0], -1]), axis=1)
    return tf.reshape(tf.sqrt(squares), [-1] + [1] * (len(x.shape) - 1))
