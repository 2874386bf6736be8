"""What can be evaluated: a Keras model, an exported one, or one behind a TF Serving endpoint.

Not here: measures. They take a `Subject`, which answers with logits and OOD scores, and with
gradients, refined inputs and samples where its kind allows.
"""

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import keras
import numpy as np
import tensorflow as tf
from scipy.special import logsumexp, softmax

from jem_tf import energy as maths
from jem_tf import inputs
from jem_tf.checks import are_probabilities
from jem_tf.evaluation.progress import bar
from jem_tf.inspection import newest

BATCH_SIZE = 256
DEADLINE = 60.0  # seconds for one request
MESSAGE_BYTES = 2**28


class Subject:
    """A classifier under test; `name` heads its column in the report.

    ```python
    subject = evaluation.of(keras_model, "mine")  # or open_subject("saved_models/digits")
    subject.scores(x)["gradient_norm"]            # arrays, or a tf.data.Dataset of batches
    ```
    """

    name: str
    shape: tuple[int, ...]
    num_classes: int
    kinds: tuple[str, ...] = maths.OOD_SCORES  # the OOD scores it can give
    network: Callable[[tf.Tensor], tf.Tensor] | None = None  # logits with gradients by inputs
    jem: Any = None  # the model itself, if it is a JEM in this process
    sample_steps: int | None = None  # of its samples, if it decides that itself
    lacks: tuple[str, ...] = ()  # what it cannot do and why, in words

    def score_batch(self, x: np.ndarray) -> dict[str, Any]:
        """`logits`, and `gradient_norm` if it is among `kinds`, of one batch."""
        raise NotImplementedError

    def answer(self, x: np.ndarray) -> np.ndarray:
        """Logits of one batch."""
        return np.asarray(self.score_batch(x)["logits"])

    def sample(self, labels: np.ndarray, seed: int, steps: int) -> np.ndarray:
        """A sample of p(x | y) for each label."""
        raise ValueError(f"{self.name} cannot sample.")

    @property
    def samples(self) -> bool:
        """Whether it can sample."""
        return False

    def scores(self, x: Any, about: str = "scores", labelled: bool = False) -> dict[str, Any]:
        """Logits and OOD scores of all rows of `x`; with the labels `y` if `labelled`."""
        parts: dict[str, list[np.ndarray]] = {}
        for rows, labels in bar(*_batches(x), about=about):
            inputs.check_shape(rows.shape[1:], self.shape)
            found = self.score_batch(rows)
            if labelled:
                if labels is None:
                    raise ValueError("The rows to test on have no labels.")
                found["y"] = inputs.check_labels(np.asarray(labels), self.num_classes)
            for key, value in found.items():
                parts.setdefault(key, []).append(np.asarray(value))
        joined = {key: np.concatenate(values) for key, values in parts.items()}
        if "log_density" in self.kinds:
            joined["log_density"] = logsumexp(joined["logits"], axis=-1)
        joined["max_probability"] = softmax(joined["logits"], axis=-1).max(-1)
        return joined


class InProcess(Subject):
    """A JEM, or any Keras classifier that ends in logits or in probabilities."""

    def __init__(self, model: keras.Model, name: str, scale: Any = 1.0):
        self.name = name
        network = model
        if hasattr(model, "run_chains"):
            self.jem, network, scale = model, model.backbone, model.start.scale
            self.shape, self.num_classes = model.example_shape, model.num_classes
        else:
            self.shape = _shape_of(model, name)
        probe = np.random.default_rng(0).normal(size=(8, *self.shape)).astype(np.float32)
        output = np.asarray(network(probe, training=False))
        if output.ndim != 2 or output.shape[1] < 2:
            raise ValueError(
                f"{name} must return [batch, classes], at least two. Received: {output.shape}"
            )
        self.num_classes = output.shape[1]
        normalised = are_probabilities(output)  # so that log p(x) is lost
        if normalised:
            self.kinds = ("max_probability",)
            self.lacks = ("log p(x) and its gradient: the network ends in probabilities",)
        elif (output >= 0).all() and (output <= 1).all() and output.std() > 0:
            raise ValueError(
                f"{name} returns values in [0, 1] that are no probabilities of one class each; "
                "remove the sigmoid. "
                f"Received: {np.array2string(output[0], precision=3, threshold=6)}"
            )

        def logits(x: tf.Tensor) -> tf.Tensor:
            values = tf.cast(network(x, training=False), tf.float32)
            if normalised and (output >= 0).all():
                return tf.math.log(tf.maximum(values, 1e-30))
            return values

        self.network = logits

        @tf.function(reduce_retracing=True)
        def score(x: tf.Tensor) -> dict[str, tf.Tensor]:
            if normalised:
                return {"logits": logits(x)}
            found, _, norm = maths.scored(logits, x, scale)
            return {"logits": found, "gradient_norm": -norm}

        self._score = score

    @property
    def samples(self) -> bool:
        return self.jem is not None and self.jem.start.adapted

    def score_batch(self, x: Any) -> dict[str, Any]:
        return dict(self._score(tf.cast(x, tf.float32)))

    def sample(self, labels: np.ndarray, seed: int, steps: int) -> np.ndarray:
        parts = _split(labels)
        drawn = [
            self.jem.sample(len(part), part, steps=steps, seed=seed + i)
            for i, part in bar(enumerate(parts), len(parts), about="samples")
        ]
        return np.concatenate(drawn)


class Signatures(Subject):
    """A model known by its signatures; `call` runs one."""

    def __init__(self, name: str, signatures: dict[str, tuple[dict[str, Any], set[str]]]):
        self.name = name
        self.signatures = signatures  # name: ({input: shape without batch}, outputs)
        source = next(iter(_sources(signatures)), None)
        if source is None:
            raise ValueError(
                f"{name} has no signature that gives `logits` or `probabilities` of one input of "
                f"floats of known size. Its signatures: {_listed(signatures)}"
            )
        self._signature, self._output = source
        self._input, shape = next(iter(signatures[self._signature][0].items()))
        self.shape = tuple(shape or ())
        probe = np.random.default_rng(0).normal(size=(4, *self.shape)).astype(np.float32)
        values = np.asarray(self.call(self._signature, **{self._input: probe})[self._output])
        if values.ndim != 2 or values.shape[1] < 2:
            raise ValueError(
                f"{name} must return [batch, classes], at least two. Received: {values.shape}"
            )
        self.num_classes = values.shape[1]
        self._normalised = are_probabilities(values)
        scored = "gradient_norm" in signatures.get("ood_score", ({}, set()))[1]
        if self._normalised:
            self.kinds = ("max_probability",)
            self.lacks = ("log p(x): there is no signature with logits",)
        elif not scored:
            self.kinds = ("log_density", "max_probability")
        if not scored:
            self.lacks = (*self.lacks, "the gradient norm: there is no signature `ood_score`")
        self.lacks = (
            *self.lacks,
            "attacks through refinement, chains and buffer: only of runs and `.keras` files",
        )

    @property
    def samples(self) -> bool:
        return "sample" in self.signatures

    def call(self, signature: str, **arguments: Any) -> dict[str, Any]:
        """The outputs of `signature`, by name."""
        raise NotImplementedError

    def answer(self, x: Any) -> np.ndarray:
        inputs = np.asarray(x, np.float32)
        values = np.asarray(self.call(self._signature, **{self._input: inputs})[self._output])
        return np.log(np.maximum(values, 1e-30)) if self._normalised else values

    def score_batch(self, x: Any) -> dict[str, Any]:
        found = {"logits": self.answer(x)}
        if "gradient_norm" in self.kinds:
            scores = self.call("ood_score", inputs=np.asarray(x, np.float32))
            found["gradient_norm"] = scores["gradient_norm"]
        return found

    def sample(self, labels: np.ndarray, seed: int, steps: int) -> np.ndarray:
        """Its own number of steps was fixed when it was exported."""
        parts = _split(labels)
        drawn = []
        for i, part in bar(enumerate(parts), len(parts), about="samples"):
            seeds = (seed + 1000 * i + np.arange(len(part))).astype(np.int32)
            drawn.append(self.call("sample", labels=part.astype(np.int32), seeds=seeds)["samples"])
        return np.concatenate([np.asarray(d) for d in drawn])


class Exported(Signatures):
    """A SavedModel in this process."""

    def __init__(self, directory: str | Path):
        path = newest(Path(directory))
        self._loaded = tf.saved_model.load(str(path))
        facts = path / "assets.extra" / "jem.json"
        if facts.is_file():
            self.sample_steps = json.loads(facts.read_text()).get("sample_steps")
        signatures = {
            name: (
                {
                    k: _known_shape(s.shape, s.dtype)
                    for k, s in f.structured_input_signature[1].items()
                },
                set(f.structured_outputs),
            )
            for name, f in self._loaded.signatures.items()
        }
        super().__init__(str(directory), signatures)
        if not self._normalised:
            self.network = lambda x: self.call(self._signature, **{self._input: x})[self._output]

    def call(self, signature: str, **arguments: Any) -> dict[str, Any]:
        tensors = {k: tf.convert_to_tensor(v) for k, v in arguments.items()}
        return self._loaded.signatures[signature](**tensors)


class Remote(Signatures):
    """A model behind the gRPC port of TF Serving: `grpc://host:port/model[/version]`."""

    def __init__(self, address: str):
        import grpc
        from tensorflow_serving.apis import get_model_metadata_pb2, prediction_service_pb2_grpc

        parsed = urlparse(address)
        model, *version = parsed.path.strip("/").split("/")
        if parsed.scheme != "grpc" or not parsed.netloc or not model or len(version) > 1:
            raise ValueError(
                "An endpoint must be grpc://host:port/model, or with /version after it. "
                f"Received: {address!r}"
            )
        if version and not version[0].isdigit():
            raise ValueError(f"The version must be a number. Received: {address!r}")
        self._address, self._model, self._version = address, model, version
        size = [(f"grpc.max_{way}_message_length", MESSAGE_BYTES) for way in ("send", "receive")]
        channel = grpc.insecure_channel(parsed.netloc, options=size)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._specify(request)
        answer = self._ask(self._stub.GetModelMetadata, request)
        found = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)
        signatures = {
            name: (
                {
                    k: _known_shape(tf.TensorShape(t.tensor_shape), tf.as_dtype(t.dtype))
                    for k, t in s.inputs.items()
                },
                set(s.outputs),
            )
            for name, s in found.signature_def.items()
            if name != "__saved_model_init_op"
        }
        super().__init__(address, signatures)
        self.lacks = (*self.lacks, "gradients for white-box attacks: it is behind an endpoint")

    def call(self, signature: str, **arguments: Any) -> dict[str, Any]:
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        self._specify(request)
        request.model_spec.signature_name = signature
        for key, value in arguments.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        deadline = DEADLINE * (10 if signature == "sample" else 1)  # hundreds of steps
        answer = self._ask(self._stub.Predict, request, deadline)
        return {key: tf.make_ndarray(value) for key, value in answer.outputs.items()}

    def _specify(self, request: Any) -> None:
        request.model_spec.name = self._model
        if self._version:
            request.model_spec.version.value = int(self._version[0])

    def _ask(self, method: Any, request: Any, deadline: float = DEADLINE) -> Any:
        import grpc

        try:
            return method(request, timeout=deadline)
        except grpc.RpcError as error:
            raise OSError(
                f"{self._address} answers {error.code().name}: {error.details()}"  # type: ignore
            ) from error


def of(model: keras.Model, name: str = "model", scale: Any = 1.0) -> Subject:
    """A Keras model as a subject."""
    return InProcess(model, name, scale)


def open_subject(target: str | Path, scale: Any = 1.0) -> Subject:
    """The subject at `target`: a run directory, a `.keras` file, a SavedModel or `grpc://…`."""
    if str(target).startswith("grpc:"):
        return Remote(str(target))
    path = Path(target)
    if path.is_dir() and not (path / "config.json").is_file():
        try:
            return Exported(path)
        except ValueError as error:
            if "no SavedModel" not in str(error):
                raise
            raise ValueError(
                f"{str(path)!r} is neither a run directory (no config.json) nor a SavedModel."
            ) from None
    from jem_tf import training

    if path.is_dir():
        return of(training.load(path), str(path))
    if not path.is_file():
        raise ValueError(f"There is no trained model at {str(path)!r}.")
    try:
        model = keras.saving.load_model(path)
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{str(path)!r} is not a model that Keras can load: {error}") from error
    return of(model, str(path), scale)


def _batches(x: Any) -> tuple[Iterable[tuple[Any, Any]], int | None]:
    """Pairs of inputs and labels, and how many; a `tf.data.Dataset` comes in its own batches."""
    if isinstance(x, tf.data.Dataset):
        count = int(x.cardinality())
        if count == tf.data.INFINITE_CARDINALITY:
            raise ValueError("The data set is infinite: pass `data.take(batches)`.")
        return (inputs.unpack(item)[:2] for item in x), count if count >= 0 else None
    x, y = x if isinstance(x, tuple) else (x, None)
    return inputs.batches_of(x, y, BATCH_SIZE), -(-len(x) // BATCH_SIZE)


def _shape_of(model: keras.Model, name: str) -> tuple[int, ...]:
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or None in shape[1:]:
        raise ValueError(
            f"{name} must take one input of known size, such as a model that begins with "
            f"keras.Input. Received: input shape {shape}"
        )
    return shape[1:]


def _known_shape(shape: tf.TensorShape, dtype: tf.DType) -> list[int] | None:
    """The shape of a row; None if it is not floats, or its size is not known."""
    if dtype != tf.float32 or not shape.rank or shape.rank < 2 or None in shape[1:].as_list():
        return None
    return shape[1:].as_list()


def _sources(signatures: dict[str, tuple[dict[str, Any], set[str]]]) -> Iterator[tuple[str, str]]:
    """Signatures and their outputs that may be logits or probabilities, the best first."""
    wanted = [("logits", "logits"), ("serving_default", "logits")]
    wanted += [("serving_default", "probabilities")]
    for name in ("serving_default", *signatures):  # Keras' own exports have one, `output_0`
        outputs = signatures.get(name, ({}, set()))[1]
        wanted += [(name, "output_0")] if outputs == {"output_0"} else []
    for name, output in wanted:
        takes, outputs = signatures.get(name, ({}, set()))
        if output in outputs and [s is not None for s in takes.values()] == [True]:
            yield name, output


def _split(labels: np.ndarray, size: int = 50) -> list[np.ndarray]:
    """Labels in parts that a progress bar can count."""
    return [labels[begin : begin + size] for begin in range(0, len(labels), size)]


def _listed(names: Sequence[str] | dict[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"
