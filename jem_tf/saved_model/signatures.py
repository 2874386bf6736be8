"""What each signature of an exported model computes, from the model's public methods.

Not here: how it is written (`exporter.py`), what it is calibrated with (`fitted.py`), how image
files are decoded (`images.py`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.detection.detector import FUSED
from jem_tf.model.latent import num_latent
from jem_tf.saved_model.fitted import Calibration
from jem_tf.saved_model.images import MAX_PIXELS, decode_images

Signature = Callable[..., dict[str, tf.Tensor]]


class Signatures:
    """The signatures of one model, as functions of tensors."""

    def __init__(
        self,
        model: Any,
        calibration: Calibration,
        names: tuple[str, ...],
        refine_steps: int,
        sample_steps: int,
        pixel_range: tuple[float, float] | None,
        max_pixels: int = MAX_PIXELS,
    ):
        self.model, self.calibration, self.names = model, calibration, names
        self.refine_steps, self.sample_steps = refine_steps, sample_steps
        networks = [model.backbone, *([] if model.encoder is None else [model.encoder])]
        self.variables = [v.value for network in networks for v in network.variables]
        for state in (model.input_range, model.start, model.progress, model.detector):
            self.variables += state.tf_variables
        self.shape, self.dtype = model.raw_shape, model.raw_dtype
        self.pixel_range, self.max_pixels = pixel_range, max_pixels
        self.latent: int | None = num_latent(model.backbone)  # values of z, if there is one

    def trace(self, with_chains: bool = True) -> dict[str, Any]:
        """Trace all signatures, or those without chains; return concrete functions by name."""
        x = tf.TensorSpec([None, *self.shape], self.dtype, name="inputs")
        methods: dict[str, Signature] = {
            "serving_default": self.classify,
            "logits": self.logits,
            "energy": self.energy,
            "ood_score": self.ood_score,
        }
        if self.latent is not None:
            methods["latent"] = self.latent_probabilities
        concrete = {"gradient": _trace(self.gradient, x)} if self.dtype.is_floating else {}
        if with_chains and self.model.input_range.adapted and self.model.sampler.row_seeds:
            methods["refine"] = self.refine
            integers = [tf.TensorSpec([None], tf.int32, name=name) for name in ("labels", "seeds")]
            concrete["sample"] = _trace(self.sample, *integers)
        concrete.update({name: _trace(method, x) for name, method in methods.items()})
        if self.pixel_range is not None:
            files = tf.TensorSpec([None], tf.string, name="image_bytes")
            decode = partial(
                decode_images,
                shape=self.shape,
                pixel_range=self.pixel_range,
                max_pixels=self.max_pixels,
            )
            for name, method in methods.items():
                concrete[f"{name}_bytes"] = _trace(_compose(decode, method), files)
        return concrete

    def logits(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": self._head(self.model.encode(inputs))}

    def _head(self, features: tf.Tensor) -> tf.Tensor:
        return tf.cast(self.model.backbone(features, training=False), tf.float32)

    def energy(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = self.logits(inputs)["logits"]
        return {"energy": maths.energy(logits), "joint_energy": maths.joint_energy(logits)}

    def _read(self, inputs: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Logits, and the OOD scores by name: the paper's, or all statistics of the detector."""
        detector, scale = self.model.detector, self.model.input_range.scale
        if detector.fitted:
            logits, values = detector.read(self.model.detector_inputs(inputs), scale)
            scores = dict(zip(detector.names, tf.unstack(values, axis=1)))
            scores |= {FUSED: detector.score(values), "objections": detector.objections(values)}
        else:
            features = self.model.encode(inputs)
            logits, density, norm = maths.logits_density_and_norm(self._head, features, scale)
            scores = {"log_density": density, "gradient_norm": -norm}
        scores["max_probability"] = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
        return logits, scores

    def _verdict(self, logits: tf.Tensor, scores: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`percentile`, 100 times the conformal p-value, and `is_ood`; NaN and false without a
        detector."""
        detector = self.model.detector
        if not detector.fitted:
            unknown = tf.fill(tf.shape(logits)[:1], np.float32(np.nan))
            return {"percentile": unknown, "is_ood": tf.zeros_like(unknown, tf.bool)}
        p_value = detector.p_value(scores[FUSED], tf.argmax(logits, axis=-1))
        return {"percentile": 100.0 * p_value, "is_ood": p_value <= detector.false_alarm_rate}

    def classify(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        logits, scores = self._read(inputs)
        return {
            "probabilities": tf.nn.softmax(logits / self.calibration.temperature),
            "class_id": tf.argmax(logits, axis=-1),
            "class_name": tf.gather(self.names, tf.argmax(logits, axis=-1)),
            "energy": -scores["log_density"],
            "ood_score": scores[FUSED if FUSED in scores else "log_density"],
            **self._verdict(logits, scores),
        }

    def ood_score(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        logits, scores = self._read(inputs)
        return {**scores, **self._verdict(logits, scores)}

    def latent_probabilities(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """p(z | x, y) for every class."""
        return {"latent_probabilities": self.model.latent_probabilities(inputs)}

    def gradient(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """d log p(x) / dx: how each feature makes the input more like the data."""
        score = maths.input_score(lambda x: self.logits(x)["logits"], inputs)
        scale = self.model.input_range.scale if self.model.encoder is None else 1.0
        return {"gradient": scale * score}

    def refine(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        # The row itself is the seed of its noise: an answer must not depend on its batch, and
        # refining an answer again must use other noise.
        features = self.model.encode(inputs)
        bits = tf.reshape(tf.bitcast(features, tf.int32), [tf.shape(features)[0], -1])
        seeds = tf.stack([tf.reduce_sum(bits, 1)] * 2, 1)
        refined = self.model.run_chains(features, seeds, steps=self.refine_steps)[0]
        return {"refined": refined, "logits": self._head(refined)}

    def sample(self, labels: tf.Tensor, seeds: tf.Tensor) -> dict[str, tf.Tensor]:
        """A sample for each label; it depends on its own seed only, not on its batch."""
        pairs = tf.stack([seeds, tf.zeros_like(seeds)], axis=1)
        x = self.model.start.draw(tf.shape(labels)[0], pairs, labels)
        return {"samples": self.model.run_chains(x, pairs + 1, labels, self.sample_steps)[0]}


def _trace(method: Signature, *specs: tf.TensorSpec) -> Any:
    """Trace `method` as a concrete function whose arguments have the names of `specs`."""
    return tf.function(  # Keras traces models without AutoGraph too, in half of the time
        lambda **named: method(*(named[s.name] for s in specs)), autograph=False
    ).get_concrete_function(**{spec.name: spec for spec in specs})


def _compose(first: Callable[[tf.Tensor], tf.Tensor], second: Signature) -> Signature:
    return lambda value: second(first(value))
