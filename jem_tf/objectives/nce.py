"""Noise-contrastive estimation (Gutmann and Hyvarinen, 2012): a density with its Z.

    log p(x) = log sum_y exp f(x)[y] - c,   c = log Z learned as a number
    D(x) = sigmoid(log p(x) - log q(x)) tells data from noise of the known density q

Where D cannot do better, p is the density of the data, normalised.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.objectives.objective import Batch, Objective, Terms, mean_over_replicas, penalty
from jem_tf.sampling.starts import GaussianMixture


class _Number(keras.layers.Layer):
    """One number that is learned."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.value = self.add_weight(shape=(), initializer="zeros", name="value")
        self.built = True


@keras.saving.register_keras_serializable("jem_tf")
class NCE(Objective):
    """Cross-entropy, and telling data from noise; `model.log_density(x)` is normalised then.

    ```python
    JEM(backbone, objective=NCE())                                  # a Gaussian for each class
    JEM(backbone, objective=NCE(noise=Flow()))                      # a flow, fitted first
    ```

    Args:
        noise: what data is told from, fitted to the data: `GaussianMixture` with a `floor`, or
            `Flow`. The nearer to the data, the more is learned.
        weight: of telling them apart, beside cross-entropy.
    """

    logged = ("generative_loss", "told_apart")
    normalised = True

    def __init__(self, noise: Any = None, weight: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        if not weight >= 0:
            raise ValueError(f"`weight` must not be negative. Received: weight={weight!r}")
        self.noise = GaussianMixture(floor=0.1) if noise is None else noise
        for method in ("adapt", "draw", "log_density"):
            if not callable(getattr(self.noise, method, None)):
                raise ValueError(
                    "`noise` must be a distribution that can be drawn from and whose density is "
                    f"known, such as GaussianMixture(floor=0.1) or Flow(). Received: {noise!r}"
                )
        self.weight = float(weight)
        self._log_z = _Number(name="log_z")

    @property
    def log_z(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._log_z.value)

    def prepare(self, model: Any, summary: Any) -> None:
        if self.noise.adapted:
            return
        self.noise.adapt(summary.x, summary.y, model.num_classes, summary.bounds)
        x = tf.cast(summary.x[:1000], tf.float32)
        f = maths.log_density(model.logits(x))
        # Where p would be q on average: else many steps would go by until c is large enough.
        self._log_z.value.assign(tf.reduce_mean(f - self.noise.log_density(x)))

    def contrast(self, model: Any, batch: Batch, seeds: list[tf.Tensor]) -> Any:
        """Noise, as many rows as data."""
        return self.noise.draw(tf.shape(batch.x)[0], seeds[0])

    def loss(self, model: Any, batch: Batch, x: tf.Tensor, contrast: Any) -> Terms:
        n = tf.shape(x)[0]
        both = tf.concat([x, contrast], axis=0)
        f = model.logits(both)
        logits = f[:n] if model.one_pass else model.classified(x)
        clf, mean = self.cross_entropy(model, batch, logits)
        ahead = self.ahead(f, both)
        wrong = self.wrong(ahead, n)
        weight = tf.concat([batch.weight, tf.ones([tf.shape(contrast)[0]])], axis=0)
        part = 2.0 * mean_over_replicas(wrong, weight)
        right = tf.cast(tf.concat([ahead[:n] > 0, ahead[n:] <= 0], axis=0), tf.float32)
        model.log(weight, generative_loss=2.0 * wrong, told_apart=right)
        loss = clf + self.weight * part + penalty(model)
        return Terms(loss, logits, {"cross_entropy": mean})

    def ahead(self, logits: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """log p(x) - log q(x), the logit of x being data."""
        return maths.log_density(logits) - self.log_z - self.noise.log_density(x)

    def wrong(self, ahead: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        """-log of the probability given to what rows are: the first `n` data, the others noise."""
        return tf.nn.softplus(tf.concat([-ahead[:n], ahead[n:]], axis=0))

    def get_config(self) -> dict[str, Any]:
        noise = keras.saving.serialize_keras_object(self.noise)
        return {**super().get_config(), "noise": noise, "weight": self.weight}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "NCE":
        noise = keras.saving.deserialize_keras_object(config["noise"])
        return cls(**{**config, "noise": noise})
