"""Denoising score matching (Vincent, 2011): the density of JEM, learned without samples of it.

    || sigma d log p(x~) / dx + xi ||^2 / D,   x~ = x + sigma xi,   xi ~ N(0, I)

Not here: chains, and Z, which has no gradient with respect to x. The loss is least for the density
of the data after noise of sigma was added.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf.replicas import mean_share
from jem_tf.checks import check_not_negative, check_positive
from jem_tf.objectives.base import Batch, Objective, Terms, TrainingModel


@keras.saving.register_keras_serializable("jem_tf")
class ScoreMatching(Objective):
    """Cross-entropy, and denoising score matching of log p(x).

    ```python
    JEM(backbone, objective=ScoreMatching(sigma=0.3))
    ```

    Use it with smooth activations such as SiLU: the loss has second derivatives of the network, and
    those of ReLU are zero. All rows take part, also those without a label.

    Args:
        weight: of score matching, beside cross-entropy. The loss is a mean over the D values of a
            row and is 1 for a flat density: for weights near 1, cross-entropy dominates.
        sigma: standard deviation of the noise, in half ranges of the data. It is added to that of
            `JEM(input_noise=)`. The learned density is that of the data with both.
    """

    logged = ("generative_loss",)

    def __init__(self, weight: float = 10.0, sigma: float = 0.3, **kwargs: Any):
        super().__init__(**kwargs)
        check_not_negative(weight=weight)
        check_positive("sigma", sigma)
        self.weight, self.sigma = float(weight), float(sigma)

    def negatives(self, model: TrainingModel, batch: Batch, seeds: list[tf.Tensor]) -> tf.Tensor:
        """Draw the noise xi, in the shape of the data."""
        return tf.random.stateless_normal(tf.shape(batch.x), seeds[0])

    def loss(self, model: TrainingModel, batch: Batch, negatives: tf.Tensor) -> Terms:
        terms = super().loss(model, batch, negatives)
        values = self.score_losses(model, batch.x, negatives)
        model.log(batch.weight, generative_loss=values)
        return terms._replace(loss=terms.loss + self.weight * mean_share(values, batch.weight))

    def score_losses(self, model: TrainingModel, x: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """The loss of each row; `[batch]`. The outer tape differentiates the score by weights."""
        unit = x / model.input_range.scale + self.sigma * noise
        score = maths.gradient(model.unit_log_density(None), unit)
        axes = list(range(1, len(x.shape)))
        return tf.reduce_mean((self.sigma * score + noise) ** 2, axis=axes)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weight": self.weight, "sigma": self.sigma}
