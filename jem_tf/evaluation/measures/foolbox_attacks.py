"""Foolbox's attacks on a network: PGD, the boundary attack and the pointwise attack.

Not here: what the results say about a classifier (`robustness.py`).
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.energy import LogitsFn
from jem_tf.evaluation.progress import bar

BATCH_SIZE = 128
BLACK_BOX_BATCH_SIZE = 32
MAX_ZERO_GRADIENTS = 0.1  # share of rows, before gradients count as masked

Predict = Callable[[np.ndarray], np.ndarray]
# Inputs, labels and a size in the units of the inputs to changed inputs.
Attack = Callable[[np.ndarray, np.ndarray, float], np.ndarray]


class FoolboxModel:
    """A network in Foolbox's interface, traced once."""

    def __init__(self, network: LogitsFn, bounds: tuple[float, float]):
        self.bounds, self.width = bounds, bounds[1] - bounds[0]
        # Foolbox needs a gradient: it is zero, not None, for a network that rounds its input.
        connected = lambda x: network(x) + 0.0 * tf.reduce_sum(x)  # noqa: E731
        self.network = tf.function(connected, reduce_retracing=True)

    @property
    def with_gradients(self) -> Any:
        """The model for attacks that use gradients."""
        device = "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"
        return import_foolbox().TensorFlowModel(self.network, self.bounds, device)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the logits of an array of any length."""
        parts = np.array_split(x.astype(np.float32), -(-len(x) // BATCH_SIZE))
        return np.concatenate([self.network(tf.constant(part)).numpy() for part in parts])

    def find_zero_gradients(self, x: np.ndarray, y: np.ndarray) -> list[str]:
        """Return a warning if the gradient of many of the inputs is exactly zero."""
        count = 0
        for begin in range(0, len(x), BATCH_SIZE):
            rows = tf.constant(x[begin : begin + BATCH_SIZE])
            with tf.GradientTape() as tape:
                tape.watch(rows)
                labels = y[begin : begin + BATCH_SIZE]
                loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self.network(rows))
            gradients = np.asarray(tape.gradient(loss, rows)).reshape(len(rows), -1)
            count += int((~gradients.any(axis=1)).sum())
        warning = f"{count / len(x):.0%} of inputs have a gradient of exactly zero: it is masked"
        return [warning] if count > MAX_ZERO_GRADIENTS * len(x) else []


def pgd(norm: str, model: FoolboxModel, steps: int) -> Attack:
    """Return PGD from a random start; calls have different starts."""
    attacks = import_foolbox().attacks
    make = attacks.LinfPGD if norm == "linf" else attacks.L2PGD
    method = make(steps=steps, rel_stepsize=max(2.5 / steps, 0.1), random_start=True)

    def run(x: np.ndarray, y: np.ndarray, epsilon: float) -> np.ndarray:
        labels = tf.constant(y, tf.int64)
        changed = method.run(model.with_gradients, tf.constant(x), labels, epsilon=epsilon)
        return changed.numpy()

    return run


def run_black_box(
    kind: str,
    predict: Predict,
    bounds: tuple[float, float],
    x: np.ndarray,
    y: np.ndarray,
    starts: np.ndarray,
    steps: int,
) -> tuple[np.ndarray, list[str]]:
    """Return the Euclidean length of the smallest change of each row, and warnings.

    The length is 0 for rows that are misclassified without a change, and infinite for rows that
    were not attacked.
    """
    foolbox = import_foolbox()
    is_boundary = kind == "boundary"
    attacks = foolbox.attacks
    method = attacks.BoundaryAttack(steps=steps) if is_boundary else attacks.PointwiseAttack()
    model = foolbox.NumPyModel(predict, bounds)  # Foolbox's indexing of TensorFlow is broken
    start_classes = predict(starts).argmax(-1)
    remaining = np.flatnonzero(predict(x).argmax(-1) == y)
    distance = np.zeros(len(x))
    without_start = [i for i in remaining if (start_classes == y[i]).all()]
    distance[without_start] = np.inf
    remaining = np.setdiff1d(remaining, without_start)
    batches = [
        remaining[begin : begin + BLACK_BOX_BATCH_SIZE]
        for begin in range(0, len(remaining), BLACK_BOX_BATCH_SIZE)
    ]
    np.random.seed(0)  # Foolbox uses NumPy's global generator
    for rows in bar(batches, len(batches), about=f"{kind} attack"):
        nearest = np.stack([_nearest(x[i], starts[start_classes != y[i]]) for i in rows])
        result = method.run(model, x[rows], y[rows], starting_points=nearest)
        change = (np.asarray(result) - x[rows]).reshape(len(rows), -1) / (bounds[1] - bounds[0])
        distance[rows] = np.linalg.norm(change, axis=1)
    warning = f"{len(without_start)} inputs were not attacked: all starts are of their class"
    return distance, [warning] if without_start else []


def _nearest(x: np.ndarray, others: np.ndarray) -> np.ndarray:
    return others[((others - x) ** 2).reshape(len(others), -1).sum(1).argmin()]


def import_foolbox() -> Any:
    """Import Foolbox; `ValueError` with the command that installs it if it is missing."""
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # for its GitPython, where git is missing
    try:
        import foolbox
    except ImportError as error:
        raise ValueError("Attacks need Foolbox: pip install 'jem_tf[report]'") from error
    return foolbox
