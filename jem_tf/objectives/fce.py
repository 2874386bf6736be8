"""Flow contrastive estimation (Gao et al., 2020): noise that learns to look like data.

As in `nce.py`, but the flow q ascends the loss which the model descends: what the model learns to
tell data from gets harder, and stays near the data.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf.objectives.flow import Flow
from jem_tf.objectives.nce import NCE
from jem_tf.objectives.objective import Batch, Terms, mean_over_replicas
from jem_tf.sampling.base import check_positive


@keras.saving.register_keras_serializable("jem_tf")
class FCE(NCE):
    """`NCE` with a `Flow` that is trained against the model.

    Args:
        noise: the flow, fitted to the data by its likelihood first.
        weight: of telling data from noise, beside cross-entropy.
        rate: learning rate of the flow, by plain gradients of norm 1 at most.
    """

    def __init__(
        self, noise: Flow | None = None, weight: float = 1.0, rate: float = 3e-3, **kwargs: Any
    ):
        noise = Flow() if noise is None else noise
        if not isinstance(noise, Flow):
            raise ValueError(f"`noise` of FCE must be a Flow, which learns. Received: {noise!r}")
        check_positive("rate", rate)
        super().__init__(noise, weight, **kwargs)
        self.rate = float(rate)
        self._teacher: keras.optimizers.Optimizer | None = None

    def prepare(self, model: Any, summary: Any) -> None:
        super().prepare(model, summary)
        if self._teacher is None:
            self._teacher = keras.optimizers.SGD(self.rate, global_clipnorm=1.0)
            self._teacher.build(self.noise.flow_weights)

    def contrast(self, model: Any, batch: Batch, seeds: list[tf.Tensor]) -> Any:
        return super().contrast(model, batch, seeds), batch, seeds[1]

    def loss(self, model: Any, batch: Batch, x: tf.Tensor, contrast: Any) -> Terms:
        return super().loss(model, batch, x, contrast[0])

    def learned(self, model: Any, contrast: Any, terms: Terms) -> None:
        super().learned(model, contrast, terms)
        _, batch, seed = contrast
        weights = self.noise.flow_weights
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for weight in weights:
                tape.watch(weight.value)
            x = self.noise.draw(tf.shape(batch.x)[0], seed)
            both = tf.concat([batch.x, x], axis=0)
            ahead = self.ahead(model.logits(both), both)
            weight = tf.concat([batch.weight, tf.ones([tf.shape(x)[0]])], axis=0)
            loss = -mean_over_replicas(self.wrong(ahead, tf.shape(batch.x)[0]), weight)
        assert self._teacher is not None
        gradients = tape.gradient(loss, [w.value for w in weights])
        self._teacher.apply_gradients(zip(gradients, weights))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate}
