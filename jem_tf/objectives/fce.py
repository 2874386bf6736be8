"""Flow contrastive estimation (Gao et al., 2020): noise that learns to look like data.

As in `nce.py`, but the flow q ascends the loss that the model descends. The negatives become harder
and stay near the data.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf.replicas import mean_share
from jem_tf.checks import check_positive
from jem_tf.objectives.base import Batch, Terms, TrainingModel
from jem_tf.objectives.flow import Flow
from jem_tf.objectives.nce import NCE, logistic_losses


@keras.saving.register_keras_serializable("jem_tf")
class FCE(NCE):
    """`NCE` with a flow that is trained against the model.

    ```python
    JEM(backbone, objective=FCE(Flow(couplings=6)))
    ```

    Args:
        noise: the flow, fitted to the data by its likelihood first: `Flow`, or
            `jem_tf.likelihood.Glow` for images.
        weight: of the discrimination, beside cross-entropy.
        rate: learning rate of the flow, for plain gradients clipped to norm 1.
    """

    def __init__(self, noise: Any = None, weight: float = 1.0, rate: float = 3e-3, **kwargs: Any):
        noise = Flow() if noise is None else noise
        if not hasattr(noise, "flow_weights"):
            raise ValueError(
                f"`noise` of FCE must be a Flow or a Glow, which learn. Received: {noise!r}"
            )
        check_positive("rate", rate)
        super().__init__(noise, weight, **kwargs)
        self.rate = float(rate)
        self._flow_optimizer: keras.optimizers.Optimizer | None = None

    def prepare(self, model: TrainingModel, summary: Any) -> None:
        super().prepare(model, summary)
        if self._flow_optimizer is None:
            self._flow_optimizer = keras.optimizers.SGD(self.rate, global_clipnorm=1.0)
            self._flow_optimizer.build(self.noise.flow_weights)

    def negatives(self, model: TrainingModel, batch: Batch, seeds: list[tf.Tensor]) -> Any:
        return super().negatives(model, batch, seeds), batch, seeds[1]

    def loss(self, model: TrainingModel, batch: Batch, negatives: Any) -> Terms:
        return super().loss(model, batch, negatives[0])

    def after_update(self, model: TrainingModel, negatives: Any, terms: Terms) -> None:
        super().after_update(model, negatives, terms)
        _, batch, seed = negatives
        weights = self.noise.flow_weights
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            x = self.noise.draw(tf.shape(batch.x)[0], seed)
            both = tf.concat([batch.x, x], axis=0)
            log_ratio = self.log_ratio(model.logits(both), both)
            weight = tf.concat([batch.weight, tf.ones([tf.shape(x)[0]])], axis=0)
            loss = -mean_share(logistic_losses(log_ratio, tf.shape(batch.x)[0]), weight)
        assert self._flow_optimizer is not None
        gradients = tape.gradient(loss, weights)
        # One infinite sample of a flow must not destroy it: such a step is left out.
        finite = tf.math.is_finite(tf.linalg.global_norm(gradients))
        gradients = [tf.where(finite, gradient, 0.0) for gradient in gradients]
        self._flow_optimizer.apply_gradients(zip(gradients, weights))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate}
