"""HDGE (Liu and Abbeel, 2020): log p(x | y) by contrast with other data, without sampling.

    log p(x | y) ~ f(x)[y] - log sum_j exp f(x_j)[y],   x_j: the batch, and earlier inputs

The sum takes the place of Z. f learns to be larger at x than at other inputs, for the class of x.
It costs as much as a classifier.

The logits in the queue have no gradient. Raising all logits of the current batch would lower the
loss as much as separating its inputs, and logits would grow without bound. So the queue keeps
logits relative to the level of their batch, log mean exp f[y], and adds the level of the current
batch: its gradient stands for theirs.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf.replicas import mean_share
from jem_tf.checks import check_not_negative, check_positive_integer
from jem_tf.objectives.base import Batch, Objective, Terms, TrainingModel


@keras.saving.register_keras_serializable("jem_tf")
class HDGE(Objective):
    """Cross-entropy, and a contrastive bound on log p(x | y) with a queue of earlier logits.

    ```python
    JEM(backbone, objective=HDGE(queue=4096))
    ```

    Args:
        weight: of the bound beside cross-entropy.
        queue: number of earlier inputs, on each replica, that an input is contrasted with.
    """

    logged = ("generative_loss",)
    per_replica = ("queue", "place")

    def __init__(self, weight: float = 1.0, queue: int = 4096, **kwargs: Any):
        super().__init__(**kwargs)
        check_not_negative(weight=weight)
        check_positive_integer("queue", queue)
        self.weight, self.queue = float(weight), int(queue)

    def prepare(self, model: TrainingModel, summary: Any) -> None:
        smallest = max(model.num_classes, summary.batch)
        if self.queue < smallest:
            raise ValueError(
                f"`queue` must hold a batch and all classes, {smallest} or more. "
                f"Received: queue={self.queue}"
            )
        if "queue" not in self:  # empty slots: exp(-1e9) = 0
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            shape = (replicas, self.queue, model.num_classes)
            self.assign(queue=np.full(shape, -1e9, np.float32), place=np.zeros(replicas, np.int32))

    def negatives(self, model: TrainingModel, batch: Batch, seeds: list[tf.Tensor]) -> tf.Tensor:
        return tf.convert_to_tensor(self["queue"])

    def loss(self, model: TrainingModel, batch: Batch, negatives: tf.Tensor) -> Terms:
        terms = super().loss(model, batch, negatives)
        f = terms.logits if model.one_pass else model.logits(batch.x)
        bound = self.bound(tf.cast(f, tf.float32), negatives, batch)
        model.log(batch.weight, generative_loss=bound)
        share = mean_share(bound, batch.weight)
        return terms._replace(loss=terms.loss + self.weight * share)

    def bound(self, f: tf.Tensor, queue: tf.Tensor, batch: Batch) -> tf.Tensor:
        """-log p(x | y) for each row, -log p(x) for rows without a label, up to a constant."""
        others = tf.concat([f, queue + level(f)], axis=0)
        log_sum = tf.reduce_logsumexp(others, axis=0)
        conditional = tf.reduce_sum(batch.targets * (log_sum - f), axis=-1)
        marginal = tf.reduce_logsumexp(others) - maths.log_density(f)
        return tf.where(batch.labelled > 0, conditional, marginal)

    def after_update(self, model: TrainingModel, negatives: tf.Tensor, terms: Terms) -> None:
        super().after_update(model, negatives, terms)
        n = tf.shape(terms.logits)[0]
        slots = (self["place"] + tf.range(n)) % self.queue
        new = tf.cast(tf.stop_gradient(terms.logits), tf.float32)
        self["queue"].scatter_nd_update(slots[:, tf.newaxis], new - level(new))
        self["place"].assign((self["place"] + n) % self.queue)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weight": self.weight, "queue": self.queue}


def level(f: tf.Tensor) -> tf.Tensor:
    """log mean exp of the logits of each class; `[classes]`."""
    return tf.reduce_logsumexp(f, axis=0) - tf.math.log(tf.cast(tf.shape(f)[0], tf.float32))
