"""HDGE (Liu and Abbeel, 2020): log p(x | y) by contrast with other data, without sampling.

    log p(x | y) ~ f(x)[y] - log sum_j exp f(x_j)[y],   x_j: the inputs of the batch

The sum takes the place of Z. f learns to be larger at x than at other inputs, for the class of x.
It costs as much as a classifier.

The paper contrasts normalised logits, and has a queue of earlier ones in the sum. Here there is no
queue: without normalisation it has no effect on the gradient or makes logits grow without bound.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf.replicas import mean_share
from jem_tf.checks import check_not_negative, check_positive
from jem_tf.objectives.base import Batch, Objective, Terms, TrainingModel, regularisation


@keras.saving.register_keras_serializable("jem_tf")
class HDGE(Objective):
    """Cross-entropy, and a contrastive bound on log p(x | y) within a batch.

    ```python
    JEM(backbone, objective=HDGE())
    JEM(backbone, objective=HDGE(classifies=False, temperature=0.1))     # log p(x | y) only
    ```

    Replicas contrast their own rows.

    Args:
        weight: of the bound beside cross-entropy.
        classifies: whether cross-entropy is part of the loss. Without it accuracy is lower, and
            probabilities must be calibrated.
        temperature: None contrasts logits as they are. A number contrasts logits that are scaled
            to length 1 and divided by it; the paper's is 0.1. This compares classes without
            cross-entropy, but log p(x) is not learned.
    """

    logged = ("generative_loss",)

    def __init__(
        self,
        weight: float = 1.0,
        classifies: bool = True,
        temperature: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_not_negative(weight=weight)
        if temperature is not None:
            check_positive("temperature", temperature, "None or a positive number")
        self.weight, self.classifies, self.temperature = float(weight), classifies, temperature

    def loss(self, model: TrainingModel, batch: Batch, negatives: None) -> Terms:
        terms = super().loss(model, batch, negatives)
        f = terms.logits if model.one_pass else model.logits(batch.x)
        bound = self.bound(tf.cast(f, tf.float32), batch)
        model.log(batch.weight, generative_loss=bound)
        rest = terms.loss if self.classifies else regularisation(model)
        return terms._replace(loss=rest + self.weight * mean_share(bound, batch.weight))

    def bound(self, f: tf.Tensor, batch: Batch) -> tf.Tensor:
        """-log p(x | y) for each row, -log p(x) for rows without a label, up to a constant."""
        if self.temperature is not None:
            f = tf.math.l2_normalize(f, axis=-1) / self.temperature
        conditional = tf.reduce_sum(batch.targets * (tf.reduce_logsumexp(f, axis=0) - f), axis=-1)
        marginal = tf.reduce_logsumexp(f) - maths.log_density(f)
        return tf.where(batch.labelled > 0, conditional, marginal)

    def convert_saved(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {}  # files of earlier versions have a queue of logits, which had no effect

    def get_config(self) -> dict[str, Any]:
        settings = {n: getattr(self, n) for n in ("weight", "classifies", "temperature")}
        return {**super().get_config(), **settings}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "HDGE":
        return cls(**{name: value for name, value in config.items() if name != "queue"})
