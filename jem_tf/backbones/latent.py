"""A last layer with a latent variable z: each class has several kinds of inputs.

    E(x, y) = -log sum_z exp f(x)[y, z],    p(z | x, y) = softmax_z f(x)[y, z]

Not here: what a model answers about z (`model/latent.py`).
"""

from typing import Any

import keras
from keras import layers, ops

from jem_tf.checks import check_positive_integer

# Of the kernels of the values of z of a class, relative to the kernel they share. Values that begin
# far apart collapse: one of them takes all inputs of a class (docs/explanations/family/latent.md).
NOISE = 0.3


@keras.saving.register_keras_serializable("jem_tf")
class LatentDense(layers.Layer):
    """A dense layer to `units` logits, each the log-sum-exp of `latent` values.

    ```python
    body = [keras.Input((2,)), keras.layers.Dense(64, "silu")]
    model = jem_tf.JEM(keras.Sequential([*body, LatentDense(3, latent=4)]))
    ```

    It takes the place of the last `Dense(units)` of a classifier. No label says what z is: training
    divides the inputs of a class among the values of z, which begin nearly alike.

    Args:
        units: the number of classes.
        latent: the number of values of z. With 1 this is `Dense(units)`.
    """

    def __init__(self, units: int, latent: int, **kwargs: Any):
        super().__init__(**kwargs)
        check_positive_integer("units", units)
        check_positive_integer("latent", latent)
        self.units, self.latent = int(units), int(latent)
        self.dense = layers.Dense(
            self.units * self.latent, kernel_initializer=self._start, dtype=self.dtype_policy
        )

    def build(self, input_shape: Any) -> None:
        self.dense.build(input_shape)

    def _start(self, shape: Any, dtype: Any = None) -> Any:
        """The kernel of `Dense(units)` for every z, and different noise for each z."""
        draw = keras.initializers.GlorotUniform()
        of_class = ops.repeat(draw((shape[0], self.units), dtype), self.latent, axis=1)
        return of_class + NOISE * draw(shape, dtype)

    def pairs(self, inputs: Any) -> Any:
        """f(x)[y, z] for the values `inputs` of the layer before; `[batch, units, latent]`."""
        return ops.reshape(self.dense(inputs), (-1, self.units, self.latent))

    def call(self, inputs: Any) -> Any:
        pairs = self.pairs(inputs)
        # The gradient of `ops.logsumexp` has operators that LiteRT lacks.
        largest = ops.stop_gradient(ops.max(pairs, axis=-1, keepdims=True))
        total = ops.sum(ops.exp(pairs - largest), axis=-1)
        return ops.log(total) + ops.squeeze(largest, -1)

    def compute_output_shape(self, input_shape: Any) -> tuple[Any, ...]:
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units, "latent": self.latent}


def logits_layer(classes: int, latent: int, **options: Any) -> layers.Layer:
    """The last layer of a network: `Dense`, or `LatentDense` if `latent` is more than 1."""
    check_positive_integer("latent", latent)
    if latent == 1:
        return layers.Dense(classes, **options)
    return LatentDense(classes, latent, **options)
