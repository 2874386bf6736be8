"""PixelCNN++ (Salimans et al., 2017): the probability of each pixel given those before it.

Not a density: images have `levels` values per pixel, and all images together have probability 1.

    log P(x | y) = sum_i log P(x_i | x_1 ... x_(i-1), y),   a mixture of discretised logistics
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf.likelihood import fitting
from jem_tf.likelihood.base import LikelihoodModel


@keras.saving.register_keras_serializable("jem_tf")
class PixelCNN(LikelihoodModel):
    """PixelCNN++ of TensorFlow Probability, a distribution of images at levels.

    ```python
    pixelcnn = PixelCNN(filters=4, mixture=2, epochs=1, batch_size=20)
    pixelcnn.fit(x_train)
    pixelcnn.log_density(x)     # nats, log P(x) of x rounded to its levels
    pixelcnn.bits_per_dim(x)
    ```

    `gradient` is that by the pixels that the network reads. The pixel whose probability is asked
    for has no gradient, as it has one of `levels` values. With `classes`, log p(x) needs a pass of
    the network for each class.

    Args:
        filters: channels of the network.
        resnet: residual layers in each part of the network.
        hierarchies: resolutions; height and width must be multiples of 2 ** (`hierarchies` - 1).
        mixture: number of logistic distributions for each pixel.
        **settings: those of `LikelihoodModel`: `classes`, `levels`, `pixel_range`, `epochs`,
            `batch_size`, `learning_rate` and `seed`.
    """

    def __init__(
        self,
        filters: int = 32,
        resnet: int = 1,
        hierarchies: int = 1,
        mixture: int = 5,
        **settings: Any,
    ):
        network = {"filters": filters, "resnet": resnet, "hierarchies": hierarchies}
        super().__init__(network={**network, "mixture": mixture}, **settings)
        self.unit = 1.0 / self.levels.step

    def _create(self) -> tuple[list[tf.Variable], list[tf.Variable]]:
        from tensorflow_probability.python import distributions

        multiple = 2 ** (self.network["hierarchies"] - 1)
        if any(n % multiple for n in self._shape[:2]):
            raise ValueError(
                f"PixelCNN with {self.network['hierarchies']} hierarchies needs a height and a "
                f"width that are multiples of {multiple}. Received: shape {self._shape}"
            )
        self._pixelcnn = distributions.PixelCNN(
            self._shape,
            conditional_shape=(self.classes,) if self.classes else None,
            num_resnet=self.network["resnet"],
            num_hierarchies=self.network["hierarchies"],
            num_filters=self.network["filters"],
            num_logistic_mix=self.network["mixture"],
            dropout_p=0.0,
            use_weight_norm=False,
            high=self.levels.count - 1,
        )
        trained = list(self._pixelcnn.network.trainable_variables)
        fitting.redraw(trained, self.seed)
        # TFP masks kernels by constraints, which only an update applies: before it, a pixel would
        # see itself, and the probabilities of all images would not add up to 1.
        for variable in trained:
            if getattr(variable, "constraint", None) is not None:
                variable.assign(variable.constraint(variable))
        return trained, trained

    def _values(self, x: tf.Tensor) -> tf.Tensor:
        """The number of the level of each pixel."""
        return self.levels.numbers(x)

    def training_log_mass(self, x: tf.Tensor, y: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """log P(x, y)."""
        return self._log_conditional(self._values(x), y) + tf.gather(self["log_prior"], y)

    def _log_conditional(self, values: tf.Tensor, y: tf.Tensor | None = None) -> tf.Tensor:
        if y is not None or not self.classes:
            log_p = self._log_prob(values, y)
            return log_p if y is not None else log_p[:, tf.newaxis]
        n = tf.shape(values)[0]
        passes = [self._log_prob(values, tf.fill([n], c)) for c in range(self.classes)]
        return tf.stack(passes, axis=1)

    def _log_prob(self, values: tf.Tensor, y: tf.Tensor | None) -> tf.Tensor:
        values = tf.ensure_shape(values, [None, *self._shape])
        if not self.classes:
            return self._pixelcnn.log_prob(values, training=False)
        condition = tf.one_hot(y, self.classes)
        return self._pixelcnn.log_prob(values, conditional_input=condition, training=False)

    def sample(self, n: int, y: Any = None, seed: int = 0) -> np.ndarray:
        """Draw `n` images, of labels `y` if there are classes: a pass of the network per pixel."""
        rng = np.random.default_rng(seed)
        if self.classes and y is None:
            y = rng.choice(self.classes, n, p=tf.nn.softmax(self["log_prior"]).numpy())
        condition = [] if not self.classes else [tf.one_hot(np.asarray(y), self.classes)]
        if "parameters" not in self._compiled:
            network = self._pixelcnn.network

            def parameters(*inputs: tf.Tensor) -> Any:
                return network(list(inputs) if condition else inputs[0], training=False)

            self._compiled["parameters"] = tf.function(parameters, autograph=False)
        x = np.zeros((n, *self._shape), np.float32)  # from -1 to 1, as TFP's network takes it
        for row, column in np.ndindex(*self._shape[:2]):
            outputs = self._compiled["parameters"](tf.constant(x), *condition)
            pixel = [np.asarray(output[:, row, column], np.float64) for output in outputs]
            x[:, row, column] = self._draw_pixel(rng, *pixel)
        low, high = self.levels.low, self.levels.high
        return (low + (x + 1.0) * ((high - low) / 2.0)).astype(np.float32)

    def _draw_pixel(
        self,
        rng: np.random.Generator,
        logits: np.ndarray,
        locations: np.ndarray,
        scales: np.ndarray,
        coefficients: np.ndarray | None = None,
    ) -> np.ndarray:
        """The channels of a pixel, at levels. TFP's own samples are rounded only at the end."""
        chosen = (logits + rng.gumbel(size=logits.shape)).argmax(-1)
        rows, used = np.arange(len(logits)), 0
        channels: list[np.ndarray] = []
        for channel in range(locations.shape[-1]):
            location = locations[rows, chosen, channel]
            for value in channels:
                assert coefficients is not None
                location = location + value * coefficients[rows, chosen, used]
                used += 1
            value = location + scales[rows, chosen, channel] * rng.logistic(size=len(logits))
            half = (self.levels.count - 1) / 2.0
            channels.append(np.round((np.clip(value, -1.0, 1.0) + 1.0) * half) / half - 1.0)
        return np.stack(channels, axis=-1)
