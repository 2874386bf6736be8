"""Models known by their signatures: a SavedModel, or one behind a TF Serving endpoint.

Not here: models of Keras (`subjects.py`).
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
import tensorflow as tf

from jem_tf.checks import are_probabilities
from jem_tf.client import JEMClient
from jem_tf.client.client import SCHEMES
from jem_tf.evaluation.progress import bar
from jem_tf.evaluation.subjects.in_process import Subject, split
from jem_tf.saved_model.description import newest

DEADLINE = 600.0  # seconds for one request: samples take hundreds of steps


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

    @abstractmethod
    def call(self, signature: str, **arguments: Any) -> dict[str, Any]:
        """The outputs of `signature`, by name."""

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
        parts = split(labels)
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
                    k: _row(s.dtype.name, s.shape.as_list() if s.shape.rank else None)
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
    """A model behind TF Serving: `grpc://host:port/model[/version]`, or `http://…`."""

    def __init__(self, address: str):
        parsed = urlparse(address)
        model, *version = parsed.path.strip("/").split("/")
        if parsed.scheme not in SCHEMES or not parsed.netloc or not model or len(version) > 1:
            raise ValueError(
                "An endpoint must be grpc://host:port/model (or grpcs, http, https), or with "
                f"/version after it. Received: {address!r}"
            )
        if version and not version[0].isdigit():
            raise ValueError(f"The version must be a number. Received: {address!r}")
        self._client = JEMClient(
            f"{parsed.scheme}://{parsed.netloc}",
            model,
            int(version[0]) if version else None,
            timeout=DEADLINE,
        )
        signatures = {
            name: ({k: _row(*v) for k, v in s.inputs.items()}, set(s.outputs))
            for name, s in self._client.signatures().items()
        }
        super().__init__(address, signatures)
        self.lacks = (*self.lacks, "gradients for white-box attacks: it is behind an endpoint")

    def call(self, signature: str, **arguments: Any) -> dict[str, Any]:
        return self._client.call(signature, **arguments)


def _row(dtype: str, shape: Sequence[int | None] | None) -> list[int] | None:
    """The shape of a row; None if it is not floats, or its size is not known."""
    if dtype != "float32" or not shape or len(shape) < 2 or None in shape[1:]:
        return None
    return [size for size in shape[1:] if size is not None]


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


def _listed(names: Sequence[str] | dict[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"
