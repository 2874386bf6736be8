"""HDGE (Liu and Abbeel, 2020): log p(x | y) by contrast with other data, without sampling.

    log p(x | y) ~ f(x)[y] - log sum_j exp f(x_j)[y],   x_j: the batch, and inputs seen before

The sum takes the place of Z: it is largest where data is, so f learns to be larger at x than at
other inputs, for its own class. It costs what a classifier costs.

The queue's logits have no gradient, so that alone raising those of now would do as well as telling
inputs apart, and they would grow without end. They are kept relative to the level of their batch,
log mean exp f[y], and move with that of this one: it stands for them in the gradient of the sum.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.objectives.objective import Batch, Objective, Terms, mean_over_replicas


@keras.saving.register_keras_serializable("jem_tf")
class HDGE(Objective):
    """Cross-entropy, and a contrastive bound on log p(x | y) with a queue of logits seen before.

    Args:
        weight: of the bound beside cross-entropy.
        queue: how many earlier inputs, on each replica, an input is told from.
    """

    logged = ("generative_loss",)
    per_replica = ("queue", "place")

    def __init__(self, weight: float = 1.0, queue: int = 4096, **kwargs: Any):
        super().__init__(**kwargs)
        if not weight >= 0:
            raise ValueError(f"`weight` must not be negative. Received: weight={weight!r}")
        if not hasattr(queue, "__index__") or queue < 1:
            raise ValueError(f"`queue` must be a positive integer. Received: queue={queue!r}")
        self.weight, self.queue = float(weight), int(queue)

    def prepare(self, model: Any, summary: Any) -> None:
        least = max(model.num_classes, summary.batch)
        if self.queue < least:
            raise ValueError(
                f"`queue` must hold a batch and all classes, {least} or more. "
                f"Received: queue={self.queue}"
            )
        if "queue" not in self:  # exp of these is nothing
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            shape = (replicas, self.queue, model.num_classes)
            self.assign(queue=np.full(shape, -1e9, np.float32), place=np.zeros(replicas, np.int32))

    def contrast(self, model: Any, batch: Batch, seeds: list[tf.Tensor]) -> tf.Tensor:
        return tf.convert_to_tensor(self["queue"])

    def loss(self, model: Any, batch: Batch, x: tf.Tensor, contrast: tf.Tensor) -> Terms:
        terms = super().loss(model, batch, x, contrast)
        f = terms.logits if model.one_pass else model.logits(x)
        bound = self.bound(tf.cast(f, tf.float32), contrast, batch)
        part = mean_over_replicas(bound, batch.weight)
        model.log(batch.weight, generative_loss=bound)
        loss = terms.loss + self.weight * part
        return terms._replace(loss=loss)

    def bound(self, f: tf.Tensor, queue: tf.Tensor, batch: Batch) -> tf.Tensor:
        """-log p(x | y) for each row, -log p(x) for rows without a label, but for a constant."""
        others = tf.concat([f, queue + level(f)], axis=0)
        given = tf.reduce_sum(batch.targets * (tf.reduce_logsumexp(others, axis=0) - f), axis=-1)
        marginal = tf.reduce_logsumexp(others) - maths.log_density(f)
        return tf.where(batch.labelled > 0, given, marginal)

    def learned(self, model: Any, contrast: tf.Tensor, terms: Terms) -> None:
        super().learned(model, contrast, terms)
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
