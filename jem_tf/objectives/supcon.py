"""Supervised contrastive learning (Khosla et al., 2020): rows of a class are close to each other.

    -1/|P(i)| sum_{p in P(i)} log( exp(z_i z_p / T) / sum_{a != i} exp(z_i z_a / T) )

z: logits of length 1, P(i): the other rows of the batch with the class of row i. The loss does not
depend on the length of the logits, so that log p(x) is not learned.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf.replicas import mean_share
from jem_tf.checks import check_not_negative, check_positive
from jem_tf.objectives.base import Batch, Objective, Terms, TrainingModel


@keras.saving.register_keras_serializable("jem_tf")
class SupCon(Objective):
    """Cross-entropy, and supervised contrast of normalised logits within a batch.

    ```python
    JEM(backbone, objective=SupCon(temperature=0.1))
    ```

    Only labelled rows take part. Replicas contrast their own rows.

    Args:
        weight: of the contrastive loss beside cross-entropy. Large weights slow classification
            down in short trainings.
        temperature: T, which products of normalised logits are divided by.
    """

    logged = ("contrastive_loss",)
    needs_labels = True

    def __init__(self, weight: float = 0.1, temperature: float = 0.1, **kwargs: Any):
        super().__init__(**kwargs)
        check_not_negative(weight=weight)
        check_positive("temperature", temperature)
        self.weight, self.temperature = float(weight), float(temperature)

    def loss(self, model: TrainingModel, batch: Batch, negatives: None) -> Terms:
        terms = super().loss(model, batch, negatives)
        z = tf.math.l2_normalize(tf.cast(terms.logits, tf.float32), axis=-1)
        products = tf.matmul(z, z, transpose_b=True) / self.temperature
        others = batch.labelled * (1.0 - tf.eye(tf.shape(z)[0]))  # [row, other row]
        log_sum = tf.reduce_logsumexp(tf.where(others > 0, products, -1e9), axis=1, keepdims=True)
        positive = others * tf.matmul(batch.targets, batch.targets, transpose_b=True)
        number = tf.reduce_sum(positive, axis=1)
        total = tf.reduce_sum(positive * (log_sum - products), axis=1)
        values = tf.math.divide_no_nan(total, number)
        weight = batch.weight * tf.cast(number > 0, tf.float32)
        model.log(weight, contrastive_loss=values)
        return terms._replace(loss=terms.loss + self.weight * mean_share(values, weight))

    def get_config(self) -> dict[str, Any]:
        numbers = {"weight": self.weight, "temperature": self.temperature}
        return {**super().get_config(), **numbers}
