"""The interface of a classifier under evaluation: logits, scores, and samples where it has them.

Not here: Keras models (`in_process.py`), SavedModels and endpoints (`signature_models.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import logsumexp, softmax

from jem_tf import energy
from jem_tf.data import inputs
from jem_tf.data.labels import check_labels
from jem_tf.detection.detector import FUSED
from jem_tf.evaluation.progress import bar

BATCH_SIZE = 256
SAMPLE_BATCH_SIZE = 50  # small, so that the progress bar moves


class Subject(ABC):
    """A classifier under evaluation; `name` heads its column in the report.

    ```python
    subject = evaluation.of(keras_model, "mine")  # or open_subject("saved_models/digits")
    subject.scores(x)["gradient_norm"]            # arrays, or a tf.data.Dataset of batches
    ```

    Attributes:
        shape: the shape of one input, without the batch axis.
        score_kinds: the out-of-distribution scores that `scores` returns.
        logits_fn: inputs to logits, differentiable by the inputs; None if there are no gradients.
        jem: the model itself, if it is a `JEM` in this process.
        sample_steps: the number of sampler steps of `sample`, if the subject fixes it.
        limitations: what cannot be measured and why, for the notes of the report.
    """

    name: str
    shape: tuple[int, ...]
    num_classes: int
    score_kinds: tuple[str, ...] = energy.OOD_SCORES
    logits_fn: energy.LogitsFn | None = None
    jem: Any = None
    sample_steps: int | None = None
    limitations: tuple[str, ...] = ()

    @abstractmethod
    def score_batch(self, x: np.ndarray) -> dict[str, Any]:
        """Return `logits` of one batch, the scores of `score_kinds` that are not functions of the
        logits, and `is_ood` if there is a verdict."""

    @property
    def has_verdict(self) -> bool:
        """Whether scores include the fused one and `is_ood`."""
        return FUSED in self.score_kinds

    def fit_detector(self, x: np.ndarray, y: np.ndarray, reference: Any) -> None:
        """Fit a detector, as `JEM.fit_detector` does, if that is possible and has not been done."""
        return

    def predict_logits(self, x: np.ndarray) -> np.ndarray:
        """Return the logits `[n, classes]` of one batch."""
        return np.asarray(self.score_batch(x)["logits"])

    def predict_classes(self, x: np.ndarray) -> np.ndarray:
        """Return the most likely class `[n]` of each row of `x`."""
        begins = range(0, len(x), BATCH_SIZE)
        logits = [self.predict_logits(x[begin : begin + BATCH_SIZE]) for begin in begins]
        return np.concatenate([np.zeros((0, self.num_classes)), *logits]).argmax(-1)

    @property
    def can_sample(self) -> bool:
        """Whether `sample` is available."""
        return False

    def sample(self, labels: np.ndarray, seed: int, steps: int) -> np.ndarray:
        """Return a sample of p(x | y) for each of `labels`, `[n, ...]`."""
        raise ValueError(f"{self.name} cannot sample.")

    def scores(self, x: Any, about: str = "scores", labelled: bool = False) -> dict[str, Any]:
        """Return the logits and scores of all rows of `x`, and their labels `y` if `labelled`.

        Args:
            x: an array `[n, ...]`, or a `tf.data.Dataset` of batches.
            about: the text beside the progress bar.
            labelled: whether `x` has labels, which are then checked and returned.
        """
        parts: dict[str, list[np.ndarray]] = {}
        for rows, labels in bar(*_batches(x), about=about):
            inputs.check_shape(rows.shape[1:], self.shape)
            outputs = self.score_batch(rows)
            if labelled:
                if labels is None:
                    raise ValueError("The test rows have no labels.")
                outputs["y"] = check_labels(np.asarray(labels), self.num_classes)
            for key, value in outputs.items():
                parts.setdefault(key, []).append(np.asarray(value))
        joined = {key: np.concatenate(values) for key, values in parts.items()}
        if "log_density" in self.score_kinds:
            joined["log_density"] = logsumexp(joined["logits"], axis=-1)
        joined["max_probability"] = softmax(joined["logits"], axis=-1).max(-1)
        return joined


def split_labels(labels: np.ndarray) -> list[np.ndarray]:
    """Split `labels` into batches of `SAMPLE_BATCH_SIZE`."""
    begins = range(0, len(labels), SAMPLE_BATCH_SIZE)
    return [labels[begin : begin + SAMPLE_BATCH_SIZE] for begin in begins]


def check_outputs(outputs: np.ndarray, name: str) -> None:
    """Raise `ValueError` unless `outputs` are `[batch, classes]` of at least two classes."""
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        raise ValueError(
            f"{name} must return [batch, classes], with at least two classes. "
            f"Received: outputs of shape {outputs.shape}"
        )


def probe_inputs(n: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return `n` random inputs of `shape`, to find out what a model returns."""
    return np.random.default_rng(0).normal(size=(n, *shape)).astype(np.float32)


def _batches(x: Any) -> tuple[Iterable[tuple[Any, Any]], int | None]:
    """Return pairs of inputs and labels, and their number if it is known."""
    if isinstance(x, tf.data.Dataset):
        count = int(x.cardinality())
        if count == tf.data.INFINITE_CARDINALITY:
            raise ValueError("The data set is infinite: pass `data.take(batches)`.")
        return (inputs.unpack(item)[:2] for item in x), count if count >= 0 else None
    x, y = x if isinstance(x, tuple) else (x, None)
    return inputs.batches_of(x, y, BATCH_SIZE), -(-len(x) // BATCH_SIZE)
