"""Glow (Kingma and Dhariwal, 2018): an invertible network with a known Jacobian.

Not here: `Flow` of `objectives/flow.py`, for vectors. With z = g(x), z normal for each class:

    log p(x | y) = log N(z; mean_y, scale_y) + log |det dg/dx|
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf.likelihood import fitting
from jem_tf.likelihood.base import LikelihoodModel

LOG_2_PI = float(np.log(2.0 * np.pi))


@keras.saving.register_keras_serializable("jem_tf")
class Glow(LikelihoodModel):
    """Glow of TensorFlow Probability, a density of images.

    ```python
    glow = Glow(blocks=1, depth=2, width=8, epochs=1, batch_size=20)
    glow.fit(x_train)
    glow.log_density(x)         # nats, a density in units of x
    glow.bits_per_dim(x)        # of the image at its levels, an upper bound
    glow.draw(4, seed=(1, 2))
    ```

    Each pixel gets uniform noise as wide as a level in training, as the density of a number that
    has only 256 values is infinite. With `classes`, the normal distribution of z differs by class.

    Args:
        blocks: halvings of the image; height and width must be multiples of 2 ** `blocks`.
        depth: steps of flow in a block: activation norm, 1x1 convolution, coupling.
        width: channels in the networks of the couplings.
        **settings: those of `LikelihoodModel`: `classes`, `levels`, `pixel_range`, `epochs`,
            `batch_size`, `learning_rate` and `seed`.
    """

    def __init__(self, blocks: int = 2, depth: int = 8, width: int = 64, **settings: Any):
        super().__init__(network={"blocks": blocks, "depth": depth, "width": width}, **settings)

    def _create(self) -> tuple[list[tf.Variable], list[tf.Variable]]:
        from tensorflow_probability.python import bijectors

        blocks, width = self.network["blocks"], self.network["width"]
        if any(n % 2**blocks for n in self._shape[:2]):
            raise ValueError(
                f"Glow with {blocks} blocks needs a height and a width that are multiples of "
                f"{2**blocks}. Received: shape {self._shape}. Use fewer blocks, or resize or pad "
                "the images."
            )
        self._glow = bijectors.Glow(
            self._shape,
            num_glow_blocks=blocks,
            num_steps_per_block=self.network["depth"],
            coupling_bijector_fn=lambda shape: bijectors.GlowDefaultNetwork(shape, width),
            exit_bijector_fn=lambda shape, output_chan: bijectors.GlowDefaultExitNetwork(
                shape, output_chan, width
            ),
        )
        for part in self._glow.submodules:  # TFP's int64 fails for batches of unknown size
            if isinstance(part, bijectors.Reshape):
                part._event_shape_in = np.int32(part._event_shape_in)
                part._event_shape_out = np.int32(part._event_shape_out)
        self._draw_first_weights()
        classes, size = max(1, self.classes), int(np.prod(self._shape))
        prior = [tf.Variable(tf.zeros([classes, size]), name=n) for n in ("mean", "log_scale")]
        self._mean, self._log_scale = prior
        trained = [*self._glow.trainable_variables, *(prior if self.classes else [])]
        return [*self._glow.variables, *prior], trained

    def _draw_first_weights(self) -> None:
        """Networks and rotations by the seed: TFP draws them by the state of the process."""
        variables = self._glow.variables
        fitting.redraw([v for v in variables if "kernel" in v.name], self.seed)
        rng = np.random.default_rng(self.seed)
        triangles = [v for v in variables if "lower_upper" in v.name]
        orders = [v for v in variables if "permutation" in v.name]
        for triangle, order in zip(triangles, orders):
            rotation = np.linalg.qr(rng.normal(size=triangle.shape))[0].astype(np.float32)
            factors, permutation = tf.linalg.lu(rotation)
            triangle.assign(factors)
            order.assign(permutation)

    @property
    def flow_weights(self) -> list[tf.Variable]:
        """The weights, for an objective that trains the flow."""
        return self._learned

    def adapt(self, x: np.ndarray, y: Any = None, classes: int = 0) -> None:
        """Fit the flow to rows `x`, as an objective does; labels only if it has classes."""
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if replicas > 1:
            raise ValueError(
                "A Glow is fitted on one device. Fit it before the strategy is created, or use "
                f"`Flow`. Received: a strategy with {replicas} replicas"
            )
        self.fit(x, y if self.classes else None, verbose=False)

    def draw(self, n: Any, seed: Any, labels: Any = None, temperature: float = 1.0) -> tf.Tensor:
        """Draw `n` images, of `labels` or by the frequencies of the classes.

        Gradients flow back to the weights of the flow. z has `temperature` times its standard
        deviation.
        """
        seeds = tf.random.split(tf.convert_to_tensor(seed), 2)
        if labels is None:
            prior = tf.tile(self["log_prior"][tf.newaxis], [n, 1])
            labels = tf.random.stateless_categorical(prior, 1, seeds[0])[:, 0]
        noise = temperature * tf.random.stateless_normal([n, self._mean.shape[1]], seeds[1])
        z = tf.gather(self._mean, labels) + tf.exp(tf.gather(self._log_scale, labels)) * noise
        return self._from_unit(self._glow.forward(z))

    def sample(self, n: int, y: Any = None, seed: int = 0, temperature: float = 0.7) -> np.ndarray:
        """Draw `n` images, of labels `y` if there are classes, at levels.

        With a `temperature` of 1 they have the density of the model. After little training, some
        values are then infinite. 0.7 is that of the paper's pictures.
        """
        return self.levels.quantise(self.draw(n, (seed, 0), y, temperature)).numpy()

    def dequantise(self, x: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """Images at levels, moved inside their levels by `noise` from 0 to 1."""
        return self.levels.quantise(x) + (noise - 0.5) * self.levels.step

    def score_inputs(self, x: Any) -> tf.Tensor:
        """x at levels with one noise for all rows: no score depends on the other rows."""
        noise = tf.random.stateless_uniform([1, *self._shape], [self.seed, 7])
        return self.dequantise(x, noise)

    def training_log_mass(self, x: tf.Tensor, y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """A lower bound on log P(x, y) of the image at its levels, on average over the noise."""
        x = self.dequantise(x, tf.random.stateless_uniform(tf.shape(x), seed))
        log_p = self._log_conditional(x, y) + tf.gather(self["log_prior"], y)
        return log_p + self._log_volume

    def _log_mass(self, x: tf.Tensor) -> Any:
        noise = tf.random.stateless_uniform(tf.shape(x), [self.seed, 11])
        return self.log_density(self.dequantise(x, noise)) + self._log_volume

    @property
    def _log_volume(self) -> float:
        """Of the box of values that belong to one image at levels."""
        return float(np.prod(self._shape) * np.log(self.levels.step))

    def _log_conditional(self, values: tf.Tensor, y: tf.Tensor | None = None) -> tf.Tensor:
        unit = (values - self.levels.low) / self.levels.span + 0.5 / self.levels.count - 0.5
        unit = tf.ensure_shape(unit, [None, *self._shape])
        z = self._glow.inverse(unit)
        log_det = self._glow.inverse_log_det_jacobian(unit, event_ndims=3)
        log_det -= float(np.prod(self._shape) * np.log(self.levels.span))
        if y is None:
            z, mean, log_scale = z[:, tf.newaxis], self._mean, self._log_scale
            log_det = log_det[:, tf.newaxis]
        else:
            mean, log_scale = tf.gather(self._mean, y), tf.gather(self._log_scale, y)
        squares = tf.square((z - mean) * tf.exp(-log_scale))
        return log_det - tf.reduce_sum(0.5 * (squares + LOG_2_PI) + log_scale, axis=-1)

    def _from_unit(self, unit: tf.Tensor) -> tf.Tensor:
        return (unit + 0.5 - 0.5 / self.levels.count) * self.levels.span + self.levels.low
