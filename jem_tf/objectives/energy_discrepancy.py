"""Energy discrepancy (Schroeder et al., 2023): the density of JEM, by energies of points nearby.

    log( w / M + 1 / M sum_j exp(E(x) - E(x''_j)) ),   x''_j = x + sigma xi + sigma xi_j

Not here: chains, gradients with respect to inputs, and Z, which cancels. For many points x''_j the
loss is least for the density of the data, whatever sigma is.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf.replicas import mean_share
from jem_tf.checks import check_not_negative, check_positive, check_positive_integer
from jem_tf.objectives.base import Batch, Objective, Terms, TrainingModel, regularisation


@keras.saving.register_keras_serializable("jem_tf")
class EnergyDiscrepancy(Objective):
    """Cross-entropy, and energy discrepancy of log p(x).

    ```python
    JEM(backbone, objective=EnergyDiscrepancy(sigma=0.3, samples=8))
    ```

    All rows take part, also those without a label.

    Args:
        weight: of energy discrepancy, beside cross-entropy.
        sigma: standard deviation of each of the two perturbations, in half ranges of the data; the
            root of t in the paper.
        samples: M, the number of points near each row. The network sees M + 1 times as many rows.
        stabilisation: w. A positive number bounds the loss from below, so that single points with a
            high energy have little effect.
    """

    logged = ("generative_loss",)

    def __init__(
        self,
        weight: float = 1.0,
        sigma: float = 0.3,
        samples: int = 8,
        stabilisation: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_not_negative(weight=weight, stabilisation=stabilisation)
        check_positive("sigma", sigma)
        check_positive_integer("samples", samples)
        self.settings: dict[str, Any] = {
            "weight": float(weight),
            "sigma": float(sigma),
            "samples": int(samples),
            "stabilisation": float(stabilisation),
        }

    def negatives(self, model: TrainingModel, batch: Batch, seeds: list[tf.Tensor]) -> tf.Tensor:
        """Perturb each row once, and M times from there; `[M * batch, ...]`, one point per row,
        then the next."""
        shape, samples = tf.shape(batch.x), self.settings["samples"]
        once = tf.random.stateless_normal(shape, seeds[0])
        again = tf.random.stateless_normal(tf.concat([[samples], shape], axis=0), seeds[1])
        near = batch.x + self.settings["sigma"] * model.input_range.scale * (once + again)
        return tf.reshape(near, tf.concat([[samples * shape[0]], shape[1:]], axis=0))

    def loss(self, model: TrainingModel, batch: Batch, negatives: tf.Tensor) -> Terms:
        n = tf.shape(batch.x)[0]
        near = tf.ensure_shape(negatives, [None, *batch.x.shape[1:]])
        both = model.logits_in_shares(tf.concat([batch.x, near], axis=0))
        logits = both[:n] if model.one_pass else model.training_logits(model.augmented(batch.x))
        classification, cross_entropy = self.cross_entropy(model, batch, logits)
        f = maths.log_density(both)
        values = self.discrepancies(f[:n], tf.reshape(f[n:], [self.settings["samples"], n]))
        model.log(batch.weight, generative_loss=values)
        loss = classification + self.settings["weight"] * mean_share(values, batch.weight)
        return Terms(loss + regularisation(model), logits, {"cross_entropy": cross_entropy})

    def discrepancies(self, f: tf.Tensor, f_near: tf.Tensor) -> tf.Tensor:
        """The loss of each row, from f = -E of the rows `[n]` and of points near them `[M, n]`."""
        parts = f_near - f
        if self.settings["stabilisation"] > 0:
            constant = tf.fill([1, tf.shape(f)[0]], tf.math.log(self.settings["stabilisation"]))
            parts = tf.concat([constant, parts], axis=0)
        samples = tf.cast(self.settings["samples"], tf.float32)
        return tf.reduce_logsumexp(parts, axis=0) - tf.math.log(samples)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.settings}
