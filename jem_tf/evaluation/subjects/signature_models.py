"""Models known by their signatures as subjects: a SavedModel, or a model behind an endpoint.

Not here: Keras models (`in_process.py`).
"""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from jem_tf.checks import are_probabilities
from jem_tf.client.endpoints import open_endpoint
from jem_tf.detection.detector import FUSED
from jem_tf.energy import OOD_SCORES
from jem_tf.evaluation.progress import bar
from jem_tf.evaluation.subjects.base import Subject, check_outputs, probe_inputs, split_labels
from jem_tf.evaluation.subjects.in_process import MIN_PROBABILITY
from jem_tf.saved_model import layout
from jem_tf.saved_model.loading import load_saved_model

VERDICT = ("objections", "percentile", "is_ood")  # outputs of `ood_score` that are not scores
REQUEST_TIMEOUT = 600.0  # seconds: a sample takes hundreds of sampler steps


class SignatureSpec(NamedTuple):
    """The inputs and outputs of one signature.

    ```python
    SignatureSpec({"inputs": [28, 28, 1]}, {"logits"})
    ```
    """

    inputs: dict[str, list[int] | None]  # shape of a row; None if not float32 of known size
    outputs: set[str]


class SignatureSubject(Subject):
    """A model known by its signatures; subclasses implement `call`."""

    def __init__(self, name: str, signatures: dict[str, SignatureSpec]):
        self.name = name
        self.signatures = signatures
        source = _find_source(signatures)
        if source is None:
            raise ValueError(
                f"{name} has no signature that returns `logits` or `probabilities` for one "
                "float32 input of known size. "
                f"Its signatures: {', '.join(sorted(signatures)) or 'none'}"
            )
        self._signature, self._output = source
        self._input, shape = next(iter(signatures[self._signature].inputs.items()))
        self.shape = tuple(shape or ())
        outputs = self._call_source(probe_inputs(4, self.shape))
        check_outputs(outputs, name)
        self.num_classes = outputs.shape[1]
        self._normalised = are_probabilities(outputs)
        offered = signatures["ood_score"].outputs if "ood_score" in signatures else set()
        kinds = [kind for kind in OOD_SCORES if kind != "gradient_norm" or kind in offered]
        limitations = []
        if self._normalised:
            self.score_kinds = ("max_probability",)
            limitations.append("log p(x): there is no signature with logits")
        elif FUSED in offered:
            others = offered - {FUSED, *OOD_SCORES, *VERDICT}
            self.score_kinds = (FUSED, *kinds, *sorted(others))
        else:
            self.score_kinds = tuple(kinds)
        if "gradient_norm" not in offered:
            limitations.append("the gradient norm: there is no signature `ood_score`")
        limitations.append(
            "attacks on refined inputs (JEM-k), chains and replay buffer: these need a run "
            "directory or a `.keras` file"
        )
        self.limitations = tuple(limitations)

    @abstractmethod
    def call(self, signature: str, **arguments: Any) -> dict[str, Any]:
        """Return the outputs of `signature` by name."""

    def _call_source(self, x: Any) -> np.ndarray:
        arguments = {self._input: np.asarray(x, np.float32)}
        return np.asarray(self.call(self._signature, **arguments)[self._output])

    def predict_logits(self, x: Any) -> np.ndarray:
        values = self._call_source(x)
        return np.log(np.maximum(values, MIN_PROBABILITY)) if self._normalised else values

    def score_batch(self, x: Any) -> dict[str, Any]:
        outputs = {"logits": self.predict_logits(x)}
        if "gradient_norm" in self.score_kinds:
            scores = self.call("ood_score", inputs=np.asarray(x, np.float32))
            wanted = (*self.score_kinds, *(["is_ood"] if self.has_verdict else []))
            outputs |= {name: scores[name] for name in wanted}
        return outputs

    @property
    def can_sample(self) -> bool:
        return "sample" in self.signatures

    def sample(self, labels: np.ndarray, seed: int, steps: int) -> np.ndarray:
        """Return a sample for each of `labels`; the export fixed the number of steps."""
        batches = split_labels(labels)
        samples = []
        for i, batch in bar(enumerate(batches), len(batches), about="samples"):
            seeds = (seed + 1000 * i + np.arange(len(batch))).astype(np.int32)
            outputs = self.call("sample", labels=batch.astype(np.int32), seeds=seeds)
            samples.append(np.asarray(outputs["samples"]))
        return np.concatenate(samples)


class SavedModelSubject(SignatureSubject):
    """A SavedModel in this process: the newest version in `directory`, or `directory` itself.

    ```python
    SavedModelSubject("saved_models/digits").scores(x)
    ```
    """

    def __init__(self, directory: str | Path):
        version = layout.newest(Path(directory))
        self._loaded = load_saved_model(version)
        self.sample_steps = layout.read_metadata(version).get("sample_steps")
        signatures = {name: _spec(f) for name, f in self._loaded.signatures.items()}
        super().__init__(str(directory), signatures)
        if not self._normalised:
            self.logits_fn = lambda x: self.call(self._signature, **{self._input: x})[self._output]

    def call(self, signature: str, **arguments: Any) -> dict[str, Any]:
        tensors = {key: tf.convert_to_tensor(value) for key, value in arguments.items()}
        return self._loaded.signatures[signature](**tensors)


class EndpointSubject(SignatureSubject):
    """A model behind a server that speaks TF Serving's protocol.

    ```python
    EndpointSubject("grpc://localhost:8500/digits").scores(x)
    ```

    Args:
        address: `grpc://host:port/model` or `grpc://host:port/model/version`; the schemes grpcs,
            http and https work, too.
    """

    def __init__(self, address: str):
        self._client = open_endpoint(address, timeout=REQUEST_TIMEOUT)
        signatures = {
            name: SignatureSpec(
                {key: _row_shape(*spec) for key, spec in signature.inputs.items()},
                set(signature.outputs),
            )
            for name, signature in self._client.signatures().items()
        }
        super().__init__(address, signatures)
        self.limitations += ("white-box attacks: an endpoint returns no gradients",)

    def call(self, signature: str, **arguments: Any) -> dict[str, Any]:
        return self._client.call(signature, **arguments)


def _spec(function: Any) -> SignatureSpec:
    """Return the inputs and outputs of a signature of a loaded SavedModel."""
    inputs = {
        name: _row_shape(spec.dtype.name, spec.shape.as_list() if spec.shape.rank else None)
        for name, spec in function.structured_input_signature[1].items()
    }
    return SignatureSpec(inputs, set(function.structured_outputs))


def _row_shape(dtype: str, shape: Sequence[int | None] | None) -> list[int] | None:
    """Return the shape of one row; None if it is not float32 or its size is not known."""
    if dtype != "float32" or not shape or len(shape) < 2 or None in shape[1:]:
        return None
    return [size for size in shape[1:] if size is not None]


def _find_source(signatures: dict[str, SignatureSpec]) -> tuple[str, str] | None:
    """Return the best signature and output that are logits or probabilities of one input."""
    candidates = [("logits", "logits"), ("serving_default", "logits")]
    candidates.append(("serving_default", "probabilities"))
    # The exports of Keras have one output, `output_0`.
    for name in ("serving_default", *signatures):
        if name in signatures and signatures[name].outputs == {"output_0"}:
            candidates.append((name, "output_0"))
    for name, output in candidates:
        if name in signatures and output in signatures[name].outputs:
            shapes = list(signatures[name].inputs.values())
            if len(shapes) == 1 and shapes[0] is not None:
                return name, output
    return None
