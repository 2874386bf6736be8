"""What is evaluated: a `Subject` answers with logits and OOD scores, and with gradients and samples
where its kind allows.

Not here: measures, and models known by their signatures only (`signatures.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from scipy.special import logsumexp, softmax

from jem_tf import energy as maths
from jem_tf.checks import are_probabilities
from jem_tf.data import inputs
from jem_tf.evaluation.progress import bar

BATCH_SIZE = 256


class Subject(ABC):
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

    @abstractmethod
    def score_batch(self, x: np.ndarray) -> dict[str, Any]:
        """`logits`, and `gradient_norm` if it is among `kinds`, of one batch."""

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
        parts = split(labels)
        drawn = [
            self.jem.sample(len(part), part, steps=steps, seed=seed + i)
            for i, part in bar(enumerate(parts), len(parts), about="samples")
        ]
        return np.concatenate(drawn)


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


def split(labels: np.ndarray, size: int = 50) -> list[np.ndarray]:
    """Labels in parts that a progress bar can count."""
    return [labels[begin : begin + size] for begin in range(0, len(labels), size)]
