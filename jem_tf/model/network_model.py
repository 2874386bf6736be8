"""A network that may have an encoder before it, as a Keras model: logits of raw inputs.

Not here: what the logits say about an input (`energy_model.py`), training (`jem.py`).
"""

from functools import partial
from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf import cores, private
from jem_tf.model.backbone import call_allowing_empty, check_backbone, check_output_shape
from jem_tf.model.encoding import Encoder


class NetworkModel(private.TrainableModel):
    """A backbone, from inputs or from the vectors of an encoder to logits."""

    def __init__(
        self, backbone: keras.Model, encoder: keras.Model | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_backbone(backbone)
        self.backbone = backbone
        self.encoder = encoder
        self._encoding = None if encoder is None else Encoder(encoder, backbone)

    def build(self, input_shape: Any) -> None:
        logits = self.backbone(keras.KerasTensor(input_shape))  # builds it, whatever its kind
        check_output_shape(getattr(logits, "shape", logits))
        self.num_classes = logits.shape[-1]
        self.example_shape = tuple(input_shape[1:])
        self.built = True

    @property
    def raw_shape(self) -> tuple[Any, ...]:
        """The shape of a raw input; without an encoder that of an input of the backbone."""
        return self.example_shape if self._encoding is None else self._encoding.shape

    @property
    def raw_dtype(self) -> tf.DType:
        """The type of raw inputs: float32, or what the encoder takes."""
        return tf.float32 if self._encoding is None else self._encoding.dtype

    @property
    def raw_network(self) -> keras.Model:
        """The network that takes raw inputs: the encoder, or without one the backbone."""
        return self.backbone if self.encoder is None else self.encoder

    def encode(self, x: Any) -> Any:
        """The vectors of raw inputs `x`; `x` itself without an encoder.

        Vectors of an array can be passed to every method instead of raw inputs, and are not encoded
        again. A tensor becomes a tensor, differentiable by `x`.
        """
        if self._encoding is None:
            return x
        return self._encoding(x) if tf.is_tensor(x) else self._encoding.data(x)[0]

    def encode_data(self, x: Any, y: Any = None) -> tuple[Any, Any]:
        """x and y with x encoded; finite streams become arrays. The same without an encoder."""
        return (x, y) if self._encoding is None else self._encoding.data(x, y)[:2]

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.predict`: logits `[n, classes]`."""
        return super().predict(self.encode(x), *args, **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As `keras.Model.evaluate`."""
        if self._encoding is not None and not private.is_inside_fit(kwargs):
            x, y, weight = self._encoding.data(x, y, kwargs.pop("sample_weight", None))
            kwargs["sample_weight"] = weight
        return super().evaluate(x, y, *args, **kwargs)

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Logits `[batch, classes]`."""
        return self.backbone(inputs, training=training)

    def logits(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """The logits of the backbone, in the graph, for any number of rows."""
        return call_allowing_empty(partial(self.backbone, training=training), x)

    def logits_in_shares(self, x: tf.Tensor) -> tf.Tensor:
        """`logits`, for shares of the rows side by side where operations have one core each."""
        shares = cores.split_rows(x, cores.num_shares())
        return tf.concat([self.logits(x[rows]) for rows in shares], axis=0)
