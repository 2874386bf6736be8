"""Noise-contrastive estimation (Gutmann and Hyvarinen, 2012): a density with its Z.

    log p(x) = log sum_y exp f(x)[y] - c,   c = log Z is a learned scalar
    D(x) = sigmoid(log p(x) - log q(x)) discriminates data from noise of the known density q

When D is optimal, p is the density of the data, normalised.
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf.replicas import mean_share, sum_over_replicas
from jem_tf.checks import check_not_negative
from jem_tf.objectives.base import Batch, Objective, Terms, TrainingModel, regularisation
from jem_tf.sampling.starts import ChainStart, GaussianMixture


class _Scalar(keras.layers.Layer):
    """One learned number."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.value = self.add_weight(shape=(), initializer="zeros", name="value")
        self.built = True


@keras.saving.register_keras_serializable("jem_tf")
class NCE(Objective):
    """Cross-entropy, and discriminating data from noise; makes `model.log_density(x)` available.

    ```python
    JEM(backbone, objective=NCE())                                  # a Gaussian for each class
    JEM(backbone, objective=NCE(noise=Flow()))                      # a flow, fitted first
    ```

    Args:
        noise: the noise distribution, which is fitted to the data: `GaussianMixture` with a
            `floor`, or `Flow`. The closer it is to the data, the more is learned.
        weight: of the discrimination, beside cross-entropy.
    """

    logged = ("generative_loss", "discriminator_accuracy")
    normalised = True

    def __init__(self, noise: Any = None, weight: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        check_not_negative(weight=weight)
        self.noise = GaussianMixture(floor=0.1) if noise is None else noise
        for method in ("adapt", "draw", "log_density"):
            if not callable(getattr(self.noise, method, None)):
                raise ValueError(
                    "`noise` must be a distribution that can be drawn from and whose density is "
                    f"known, such as GaussianMixture(floor=0.1) or Flow(). Received: {noise!r}"
                )
        self.weight = float(weight)
        self._log_z = _Scalar(name="log_z")

    @property
    def log_z(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._log_z.value)

    def prepare(self, model: TrainingModel, summary: Any) -> None:
        if not self.noise.adapted:
            if isinstance(self.noise, ChainStart):
                self.noise.input_range = model.input_range
            self.noise.adapt(summary.x, summary.y, model.num_classes)
        if int(tf.convert_to_tensor(model.progress["step"])) > 0:
            return
        x = tf.cast(summary.x[:1000], tf.float32)
        f = maths.log_density(model.logits(x))
        # p = q on average. From 0, c would take many steps to become large enough.
        self._log_z.value.assign(tf.reduce_mean(f - self.noise.log_density(x)))

    def negatives(self, model: TrainingModel, batch: Batch, seeds: list[tf.Tensor]) -> Any:
        """Draw noise, as many rows as data."""
        return self.noise.draw(tf.shape(batch.x)[0], seeds[0])

    def loss(self, model: TrainingModel, batch: Batch, negatives: Any) -> Terms:
        n = tf.shape(batch.x)[0]
        both = tf.concat([batch.x, negatives], axis=0)
        f = model.logits(both)
        logits = f[:n] if model.one_pass else model.training_logits(model.augmented(batch.x))
        classification, cross_entropy = self.cross_entropy(model, batch, logits)
        log_ratio = self.log_ratio(f, both)
        weight = tf.concat([batch.weight, tf.ones([tf.shape(negatives)[0]])], axis=0)
        logistic, _ = discriminate(model, log_ratio, n, weight)
        loss = classification + self.weight * logistic + regularisation(model)
        return Terms(loss, logits, {"cross_entropy": cross_entropy})

    def log_ratio(self, logits: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """log p(x) - log q(x), the logit of x being data."""
        return maths.log_density(logits) - self.log_z - self.noise.log_density(x)

    def get_config(self) -> dict[str, Any]:
        noise = keras.saving.serialize_keras_object(self.noise)
        return {**super().get_config(), "noise": noise, "weight": self.weight}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "NCE":
        if config["noise"].get("registered_name") == "jem_tf>Glow":
            import jem_tf.likelihood  # noqa: F401 (registers it; loaded only if it is used)
        noise = keras.saving.deserialize_keras_object(config["noise"])
        return cls(**{**config, "noise": noise})


def discriminate(
    model: TrainingModel, scores: tf.Tensor, n: tf.Tensor, weight: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """This replica's share of the logistic loss between data and negatives, and the accuracy.

    `scores` are logits of being data: the first `n` rows are data, the others negatives.
    """
    losses = logistic_losses(scores, n)
    correct = tf.cast(tf.concat([scores[:n] > 0, scores[n:] <= 0], axis=0), tf.float32)
    model.log(weight, generative_loss=2.0 * losses, discriminator_accuracy=correct)
    accuracy = sum_over_replicas(mean_share(correct, weight))
    return 2.0 * mean_share(losses, weight), accuracy


def logistic_losses(scores: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """-log of the probability of the true kind: the first `n` rows are data, the others not."""
    return tf.nn.softplus(tf.concat([-scores[:n], scores[n:]], axis=0))
