"""Keras models as subjects: a JEM, or any classifier that ends in logits or probabilities.

Not here: models that are known by their signatures only (`signature_models.py`).
"""

from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import energy
from jem_tf.checks import are_probabilities
from jem_tf.detection.detector import FUSED, Detector
from jem_tf.evaluation.progress import bar
from jem_tf.evaluation.subjects.base import Subject, check_outputs, probe_inputs, split_labels
from jem_tf.model import JEM

MIN_PROBABILITY = 1e-30  # keeps the logarithm of a probability finite


class KerasSubject(Subject):
    """A Keras model under evaluation.

    ```python
    KerasSubject(model, "mine").scores(x)["max_probability"]
    ```

    Args:
        model: a `JEM`, or a Keras classifier with one input of known size.
        name: the heading of its column in the report.
        scale: the unit of each input feature in the gradient norm; a `JEM` has its own.
    """

    _dtype = tf.float32  # of inputs

    def __init__(self, model: keras.Model, name: str, scale: Any = 1.0):
        self.name = name
        if isinstance(model, JEM):
            self.jem, network, scale = model, model.backbone, model.input_range.scale
            infer = model.logits_in_shares
            self.shape, encode = model.raw_shape, model.encode
            self._dtype = model.raw_dtype
            if model.encoder is not None:
                self.limitations = ("samples and JEM-k: they are features, and not inputs",)
        else:
            network, self.shape = model, _input_shape(model, name)
            encode, infer = lambda x: x, partial(network, training=False)
        if None in self.shape:
            raise ValueError(
                f"{name} must take inputs of one size. Received: inputs of shape {self.shape}"
            )
        probe = encode(_probe(self.shape, self._dtype))
        outputs = np.asarray(network(probe, training=False))
        check_outputs(outputs, name)
        self.num_classes = outputs.shape[1]
        # After a softmax, log p(x) = logsumexp of the logits is lost.
        normalised = are_probabilities(outputs)
        take_log = normalised and bool((outputs >= 0).all())
        if normalised:
            self.score_kinds = ("max_probability",)
            self.limitations = (
                "log p(x), its gradient, and the fused score: the network ends in probabilities",
            )
        else:
            _check_no_sigmoid(outputs, name)

        def head(features: tf.Tensor) -> tf.Tensor:
            values = tf.cast(infer(features), tf.float32)
            return tf.math.log(tf.maximum(values, MIN_PROBABILITY)) if take_log else values

        def logits_fn(x: tf.Tensor) -> tf.Tensor:
            return head(encode(x))

        def score(x: tf.Tensor) -> dict[str, tf.Tensor]:
            if normalised:
                return {"logits": logits_fn(x)}
            logits, _, norm = energy.logits_density_and_norm(head, encode(x), scale)
            return {"logits": logits, "gradient_norm": -norm}

        self.logits_fn = logits_fn
        self._network, self._scale, self._normalised = network, scale, normalised
        self._logits = tf.function(logits_fn, autograph=False, reduce_retracing=True)
        self._score = tf.function(score, autograph=False, reduce_retracing=True)
        if self.jem is not None and self.jem.detector.fitted:
            self._use_detector(self.jem.detector)

    def fit_detector(self, x: np.ndarray, y: np.ndarray, reference: Any) -> None:
        if self.has_verdict or self._normalised:
            return
        model = self.jem
        if model is None:
            model = JEM(self._network, objective="cross_entropy")
            model.adapt(x)
            self._scale = model.input_range.scale  # the unit that the detector is fitted in
        model.fit_detector(x, y, reference)
        self._use_detector(model.detector)

    def _use_detector(self, detector: Detector) -> None:
        """Take all scores from `detector`."""
        read = (lambda x: x) if self.jem is None else self.jem.detector_inputs
        others = [name for name in detector.names if name not in energy.OOD_SCORES]
        self.score_kinds = (FUSED, *energy.OOD_SCORES, *others)

        @tf.function(autograph=False, reduce_retracing=True)
        def score(x: tf.Tensor) -> dict[str, tf.Tensor]:
            logits, values = detector.read(read(x), self._scale)
            fused = detector.score(values)
            p_value = detector.p_value(fused, tf.argmax(logits, axis=-1))
            return {
                **dict(zip(detector.names, tf.unstack(values, axis=1))),
                "logits": logits,
                FUSED: fused,
                "is_ood": p_value <= detector.false_alarm_rate,
            }

        self._score = score

    def _as_inputs(self, x: Any) -> tf.Tensor:
        x = tf.convert_to_tensor(x)
        return x if self._dtype == tf.string else tf.cast(x, self._dtype)

    def score_batch(self, x: Any) -> dict[str, Any]:
        return dict(self._score(self._as_inputs(x)))

    def predict_logits(self, x: Any) -> np.ndarray:
        return self._logits(self._as_inputs(x)).numpy()

    @property
    def can_sample(self) -> bool:
        jem = self.jem
        return jem is not None and jem.encoder is None and jem.input_range.adapted

    def sample(self, labels: np.ndarray, seed: int, steps: int) -> np.ndarray:
        batches = split_labels(labels)
        samples = [
            self.jem.sample(len(batch), batch, steps=steps, seed=seed + i)
            for i, batch in bar(enumerate(batches), len(batches), about="samples")
        ]
        return np.concatenate(samples)


def _probe(shape: tuple[int, ...], dtype: tf.DType) -> tf.Tensor:
    """Random inputs of the type that a model takes; integers may be indices."""
    x = tf.constant(probe_inputs(8, shape))
    if dtype == tf.string:
        return tf.strings.as_string(x)
    return tf.cast(tf.abs(x) if dtype.is_integer else x, dtype)


def _input_shape(model: keras.Model, name: str) -> tuple[int, ...]:
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or None in shape[1:]:
        raise ValueError(
            f"{name} must take one input of known size, such as a model that begins with "
            f"keras.Input. Received: input shape {shape}"
        )
    if "float" not in (dtype := str(model.inputs[0].dtype)):
        raise ValueError(
            f"{name} must take real numbers. Received: inputs of {dtype}. A JEM with the part that "
            "ends in a vector as its encoder, JEM(head, encoder=encoder), can be measured."
        )
    return shape[1:]


def _check_no_sigmoid(outputs: np.ndarray, name: str) -> None:
    if (outputs >= 0).all() and (outputs <= 1).all() and outputs.std() > 0:
        raise ValueError(
            f"{name} must return logits, or probabilities that sum to 1. Received: values in "
            f"[0, 1] such as {np.array2string(outputs[0], precision=3, threshold=6)}; "
            "remove the sigmoid."
        )
