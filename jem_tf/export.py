"""A trained model as a SavedModel that TF Serving loads as it is.

Not here: training, and anything that needs this package when the result is used: the exported
graph runs with TensorFlow alone. It needs the model's public methods only.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf import inputs
from jem_tf.evaluation.calibration import (
    classification,
    confidence_of,
    fit_temperature,
    reliability,
)
from jem_tf.version import VERSION

PASS_RATE = 0.95  # of the calibration data lies above the OOD threshold
QUANTILES = 1001  # of its scores are kept, for percentiles

Signature = Callable[..., dict[str, tf.Tensor]]


def export(
    model: Any,
    directory: str | Path,
    calibrate: Any = None,
    class_names: tuple[str, ...] | None = None,
    refine_steps: int = 10,
    sample_steps: int = 400,
    warmup_batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    pixel_range: tuple[float, float] | None = None,
    test: Any = None,
    extra: dict[str, Any] | None = None,
) -> Path:
    """Write `model` as the next version below `directory`; the path of that version.

    ```python
    jem_tf.export(model, "saved_models/digits", calibrate=(x_val, y_val))
    ```

    `calibrate` is labelled data that the model was not trained on, arrays `(x, y)` or batches.
    It fits the temperature of the probabilities and the threshold below which an input counts
    as out of distribution, such that 95 % of it pass; both are constants of the graph. Without
    it the temperature is 1 and nothing is flagged. `pixel_range`, such as `(-1, 1)`, says which
    numbers black and white pixels were in training; with it image models get `*_bytes`
    signatures. `test` is other labelled data, measured with the fitted temperature; `extra` is
    kept in `assets.extra/jem.json` too. Samplers without a seed for each row (`MALA`) get no
    `refine` and `sample`: their answers would depend on what else a server puts in the batch.
    A version is written aside and renamed, so a server never sees half of one.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    names = class_names or tuple(str(i) for i in range(model.num_classes))
    if len(names) != model.num_classes:
        raise ValueError(
            f"`class_names` must name {model.num_classes} classes. Received: {len(names)}"
        )
    if None in model.example_shape:
        raise ValueError(
            f"Only inputs of one size can be exported. Received: shape {model.example_shape}"
        )
    if pixel_range is not None and model.example_shape[-1:] not in ((1,), (3,)):
        raise ValueError(
            "`pixel_range` is for images with 1 or 3 channels. "
            f"Received: inputs of shape {model.example_shape}"
        )
    facts = calibration_of(model, calibrate)
    graph = Graph(model, facts, names, refine_steps, sample_steps, pixel_range)
    signatures = graph.signatures()
    description = {
        "package_version": VERSION,
        "class_names": list(names),
        "input_shape": list(graph.shape),
        "pixel_range": pixel_range,
        "signatures": sorted(signatures),
        "refine_steps": refine_steps,
        "sample_steps": sample_steps,
        "temperature": facts.temperature,
        "ood_threshold": facts.threshold,
        "ood_pass_rate": PASS_RATE,
        "calibration": facts.metrics,
        "test": None if test is None else measured(model, test, facts.temperature),
        **(extra or {}),
    }
    version = next_version(directory)
    temporary = directory / f".writing-{version}-{os.getpid()}"
    root = tf.Module()
    root.state = graph.variables  # plain variables, so that loading needs no Keras
    try:
        tf.saved_model.save(root, str(temporary), signatures=signatures)
        assets = temporary / "assets.extra"
        assets.mkdir()
        (assets / "jem.json").write_text(json.dumps(description, indent=2) + "\n")
        requests = warmup_requests(directory.name, signatures, graph, warmup_batches)
        with tf.io.TFRecordWriter(str(assets / "tf_serving_warmup_requests")) as writer:
            for request in requests:
                writer.write(request.SerializeToString())
        os.rename(temporary, directory / str(version))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return directory / str(version)


def next_version(directory: Path) -> int:
    """One more than the largest version below `directory`."""
    return 1 + max((int(p.name) for p in directory.iterdir() if p.name.isdigit()), default=0)


@dataclass(frozen=True)
class Calibration:
    """What labelled data tells about a model's outputs."""

    temperature: float = 1.0
    threshold: float | None = None
    quantiles: tuple[float, ...] = (-np.inf, np.inf)
    metrics: dict[str, Any] | None = None


def calibration_of(model: Any, data: Any) -> Calibration:
    """Temperature, OOD threshold and score quantiles from `data`, with what they achieve on it."""
    if data is None:
        return Calibration()
    x, y = _labelled(model, data)
    scores = model.ood_score(x)
    temperature = fit_temperature(model.predict(x, batch_size=256, verbose=0), y)
    before, after = (measured(model, (x, y), t) for t in (1.0, temperature))
    return Calibration(
        temperature,
        float(np.quantile(scores, 1 - PASS_RATE)),
        tuple(np.quantile(scores, np.linspace(0, 1, QUANTILES))),
        {"before": before, "after": after},
    )


def measured(model: Any, data: Any, temperature: float) -> dict[str, float]:
    """Accuracy, NLL and ECE of the probabilities at `temperature`."""
    x, y = _labelled(model, data)
    logits = model.predict(x, batch_size=256, verbose=0) / temperature
    result = classification(logits, y)
    ece = reliability(*confidence_of(logits, y)).ece
    return {"rows": len(x), "accuracy": result.accuracy, "nll": result.nll, "ece": ece}


def _labelled(model: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    x, y = data if isinstance(data, tuple) else (data, None)
    summary = inputs.summarise(inputs.batches_of(x, y, 1024), model.num_classes)
    if summary.y is None or (summary.y < 0).any():
        raise ValueError("Data to calibrate or to test with must have a label for every row.")
    return summary.x, summary.y


class Graph:
    """What each signature computes, from a model's public methods."""

    def __init__(
        self,
        model: Any,
        facts: Calibration,
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
        concrete = {}
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
            "is_ood": is_ood,
        }

    def ood_score(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        logits, log_density, score, is_ood = self._scored(inputs)
        quantiles = tf.constant(self.facts.quantiles, tf.float32)
        ranked = tf.where(tf.math.is_nan(score), -np.inf, score)
        below = tf.searchsorted(quantiles, ranked, side="right")
        return {
            "gradient_norm": score,
            "log_density": log_density,
            "max_probability": tf.reduce_max(tf.nn.softmax(logits), axis=-1),
            "percentile": 100.0 * tf.cast(below, tf.float32) / len(self.facts.quantiles),
            "is_ood": is_ood,
        }

    def refine(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        # The same seed for every row: an answer must not depend on the batch it came in.
        seeds = tf.zeros([tf.shape(inputs)[0], 2], tf.int32)
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
