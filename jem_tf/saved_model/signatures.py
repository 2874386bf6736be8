"""What each signature of an exported model computes, from the model's public methods.

Not here: where it is written, and what it is calibrated with (`export.py`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf import energy as maths

Signature = Callable[..., dict[str, tf.Tensor]]


class Graph:
    """What each signature computes, from a model's public methods."""

    def __init__(
        self,
        model: Any,
        facts: Any,
        names: tuple[str, ...],
        refine_steps: int,
        sample_steps: int,
        pixel_range: tuple[float, float] | None,
    ):
        self.model, self.facts, self.names = model, facts, names
        self.refine_steps, self.sample_steps = refine_steps, sample_steps
        self.variables = [v.value for v in model.backbone.variables]
        self.variables += [*model.start.tf_variables, *model.progress.tf_variables]
        self.shape = model.example_shape
        self.pixel_range = pixel_range

    def signatures(self) -> dict[str, Any]:
        """Concrete functions by the names of their signatures."""
        x = tf.TensorSpec([None, *self.shape], tf.float32, name="inputs")
        methods: dict[str, Signature] = {
            "serving_default": self.classify,
            "logits": self.logits,
            "energy": self.energy,
            "ood_score": self.ood_score,
        }
        concrete = {"gradient": _traced(self.gradient, x)}
        if self.model.start.adapted and self.model.sampler.row_seeds:
            methods["refine"] = self.refine
            integers = [tf.TensorSpec([None], tf.int32, name=name) for name in ("labels", "seeds")]
            concrete["sample"] = _traced(self.sample, *integers)
        concrete.update({name: _traced(method, x) for name, method in methods.items()})
        if self.pixel_range is not None:
            files = tf.TensorSpec([None], tf.string, name="image_bytes")
            for name, method in methods.items():
                decoded = _after(self.decode, method)
                concrete[f"{name}_bytes"] = _traced(decoded, files)
        return concrete

    def logits(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": tf.cast(self.model.backbone(inputs, training=False), tf.float32)}

    def energy(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = self.logits(inputs)["logits"]
        return {"energy": maths.energy(logits), "joint_energy": maths.joint_energy(logits)}

    def _scored(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Logits, log density, OOD score and whether that is too low, or no number at all."""
        logits, density, norm = maths.scored(
            lambda x: self.logits(x)["logits"], inputs, self.model.start.scale
        )
        if self.facts.threshold is None:
            return logits, density, -norm, tf.zeros_like(norm, tf.bool)
        # Not `not >=`, which TensorFlow's optimiser turns into `<`, false for NaN.
        is_ood = (-norm < self.facts.threshold) | tf.math.is_nan(norm)
        return logits, density, -norm, is_ood

    def classify(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        logits, log_density, score, is_ood = self._scored(inputs)
        return {
            "probabilities": tf.nn.softmax(logits / self.facts.temperature),
            "class_id": tf.argmax(logits, axis=-1),
            "class_name": tf.gather(self.names, tf.argmax(logits, axis=-1)),
            "energy": -log_density,
            "ood_score": score,
            "percentile": self._percentile(score),
            "is_ood": is_ood,
        }

    def ood_score(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        logits, log_density, score, is_ood = self._scored(inputs)
        return {
            "gradient_norm": score,
            "log_density": log_density,
            "max_probability": tf.reduce_max(tf.nn.softmax(logits), axis=-1),
            "percentile": self._percentile(score),
            "is_ood": is_ood,
        }

    def _percentile(self, score: tf.Tensor) -> tf.Tensor:
        """How much of the calibration data scores lower; not a number if there was none."""
        if self.facts.threshold is None:
            return tf.fill(tf.shape(score), np.float32(np.nan))
        quantiles = tf.constant(self.facts.quantiles, tf.float32)
        ranked = tf.where(tf.math.is_nan(score), -np.inf, score)
        below = tf.searchsorted(quantiles, ranked, side="right")
        return 100.0 * tf.cast(below, tf.float32) / len(self.facts.quantiles)

    def gradient(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Which way, and how steeply, each feature makes the input more like the data."""
        slope = maths.input_score(lambda x: self.logits(x)["logits"], inputs)
        return {"gradient": self.model.start.scale * slope}

    def refine(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        # A row seeds its own noise: an answer must not depend on the batch that it came in, and
        # who refines an answer again must not meet the same noise.
        bits = tf.reshape(tf.bitcast(inputs, tf.int32), [tf.shape(inputs)[0], -1])
        seeds = tf.stack([tf.reduce_sum(bits, 1)] * 2, 1)
        refined = self.model.run_chains(inputs, seeds, steps=self.refine_steps)[0]
        return {"refined": refined, **self.logits(refined)}

    def sample(self, labels: tf.Tensor, seeds: tf.Tensor) -> dict[str, tf.Tensor]:
        """A sample for each label, which its own seed decides, whatever else is in the batch."""
        pairs = tf.stack([seeds, tf.zeros_like(seeds)], axis=1)
        x = self.model.start.draw(tf.shape(labels)[0], pairs, labels)
        return {"samples": self.model.run_chains(x, pairs + 1, labels, self.sample_steps)[0]}

    def decode(self, image_bytes: tf.Tensor) -> tf.Tensor:
        """PNG or JPEG files as inputs: decoded, resized and scaled to the training range."""
        height, width, channels = self.shape
        low, high = self.pixel_range or (-1.0, 1.0)

        def one(file: tf.Tensor) -> tf.Tensor:
            image = tf.io.decode_image(file, channels=channels, expand_animations=False)
            image = tf.cast(image, tf.float32)
            same = tf.reduce_all(tf.shape(image)[:2] == [height, width])
            resize = lambda: tf.image.resize(image, [height, width], antialias=True)  # noqa: E731
            image = tf.cond(same, lambda: image, resize)
            return tf.ensure_shape(low + image * ((high - low) / 255.0), self.shape)

        return tf.map_fn(one, image_bytes, fn_output_signature=tf.float32)


def warmup_requests(
    name: str, signatures: dict[str, Any], graph: Graph, batches: tuple[int, ...]
) -> Iterator[Any]:
    """A `PredictionLog` for each signature and batch size, as TF Serving replays at loading.

    `sample`, which takes hundreds of steps, has one for the first size only.
    """
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    picture = np.zeros((8, 8, 1 if graph.shape[-1] == 1 else 3), np.uint8)
    example: dict[str, Any] = {
        "inputs": np.zeros(graph.shape, np.float32),
        "image_bytes": tf.io.encode_png(picture).numpy(),
        "labels": np.int32(0),
        "seeds": np.int32(0),
    }
    for signature, function in signatures.items():
        for batch in batches[:1] if signature == "sample" else batches:
            request = predict_pb2.PredictRequest()
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            for key in function.structured_input_signature[1]:
                rows = np.stack([example[key]] * batch)
                request.inputs[key].CopyFrom(tf.make_tensor_proto(rows))
            log = prediction_log_pb2.PredictLog(request=request)
            yield prediction_log_pb2.PredictionLog(predict_log=log)


def _traced(method: Signature, *specs: tf.TensorSpec) -> Any:
    """A concrete function whose arguments have the names of `specs`."""
    return tf.function(
        lambda **named: method(*(named[s.name] for s in specs))
    ).get_concrete_function(**{spec.name: spec for spec in specs})


def _after(first: Callable[[tf.Tensor], tf.Tensor], then: Signature) -> Signature:
    return lambda value: then(first(value))
