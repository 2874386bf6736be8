"""Foolbox's attacks on a network: PGD, the boundary attack and the pointwise attack.

Not here: what the results say about a classifier (`robustness.py`).
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.energy import LogitsFn
from jem_tf.evaluation.progress import bar

BATCH_SIZE = 128
BLACK_BOX_BATCH_SIZE = 32
MAX_ZERO_GRADIENTS = 0.1  # share of rows, before gradients count as masked

Predict = Callable[[np.ndarray], np.ndarray]


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


def run_pgd(
    kind: str,
    model: FoolboxModel,
    x: np.ndarray,
    y: np.ndarray,
    sizes: Sequence[float],
    steps: int,
    classifier: LogitsFn,
) -> tuple[np.ndarray, list[str]]:
    """Return whether each row is still classified correctly, `[sizes, rows]`, and warnings."""
    attacks = import_foolbox().attacks
    make = attacks.LinfPGD if kind == "linf" else attacks.L2PGD
    method = make(steps=steps, rel_stepsize=max(2.5 / steps, 0.1), random_start=True)
    classifier = tf.function(classifier, reduce_retracing=True)
    tf.random.set_seed(0)  # for the random starts of Foolbox
    correct = np.zeros((len(sizes), len(x)), bool)
    jobs = [(i, b) for b in range(0, len(x), BATCH_SIZE) for i in range(len(sizes))]
    zero_gradients = 0
    for i, begin in bar(jobs, len(jobs), about=f"attack {kind}"):
        rows = slice(begin, begin + BATCH_SIZE)
        inputs, labels = tf.constant(x[rows]), tf.constant(y[rows], tf.int64)
        if sizes[i] > 0:
            epsilon = sizes[i] * model.width
            inputs = method.run(model.with_gradients, inputs, labels, epsilon=epsilon)
        else:
            zero_gradients += _count_zero_gradients(model.network, inputs, labels)
        correct[i, rows] = tf.argmax(classifier(inputs), -1) == labels
    share = zero_gradients / len(x)
    warning = f"{share:.0%} of inputs have a gradient of exactly zero: it is masked"
    return correct, [warning] if share > MAX_ZERO_GRADIENTS else []


def _count_zero_gradients(network: LogitsFn, x: tf.Tensor, y: tf.Tensor) -> int:
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(y, network(x))
    gradients = np.asarray(tape.gradient(loss, x)).reshape(len(x), -1)
    return int((~gradients.any(axis=1)).sum())


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
