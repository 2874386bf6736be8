"""Attacks of the Adversarial Robustness Toolbox (ART): APGD and the square attack.

Not here: what the results say about a classifier (`robustness.py`), Foolbox's attacks.
APGD is PGD with momentum and a step size that adapts to the progress (Croce and Hein, 2020). The
square attack is a random search that needs scores only (Andriushchenko et al., 2020).
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.evaluation.measures.foolbox_attacks import Attack, FoolboxModel, Predict

MAX_SQUARE = 0.3  # of the pixels of an image, in the first steps of the square attack


def apgd(norm: str, model: FoolboxModel, x: np.ndarray, steps: int) -> list[Attack]:
    """Return APGD with cross-entropy and with DLR, from random starts, for inputs like `x`.

    DLR compares three logits: for two classes there is cross-entropy only.
    """
    num_classes = model.predict(x[:1]).shape[1]
    losses = (cross_entropy, difference_of_logits_ratio)[: 2 if num_classes > 2 else 1]
    return [_apgd(norm, model, x.shape[1:], num_classes, steps, loss) for loss in losses]


def _apgd(
    norm: str,
    model: FoolboxModel,
    shape: tuple[int, ...],
    num_classes: int,
    steps: int,
    loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
) -> Attack:
    evasion, classification = import_art()
    estimator = classification.TensorFlowV2Classifier(
        lambda x, training=False: model.network(x),
        num_classes,
        shape,
        _Loss(loss),
        clip_values=model.bounds,
    )

    def run(x: np.ndarray, y: np.ndarray, epsilon: float) -> np.ndarray:
        method = evasion.AutoProjectedGradientDescent(
            estimator,
            norm=np.inf if norm == "linf" else 2,
            eps=epsilon,
            eps_step=2 * epsilon,  # the paper's first step
            max_iter=steps,
            nb_random_init=1,
            batch_size=len(x),
            verbose=False,
        )
        with _without_tracing_warnings():
            return method.generate(x, y)

    return run


@contextmanager
def _without_tracing_warnings() -> Iterator[None]:
    """ART traces its functions again for batches of other sizes."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def square(norm: str, predict: Predict, bounds: tuple[float, float], steps: int) -> Attack:
    """Return the square attack on images; it calls `predict` three times per step.

    ART's version for L2 fails on images of less than 10 pixels. Here, L2 is L∞ with a size of
    ε / sqrt(values), which is inside the ball and reaches its surface.
    """
    evasion, classification = import_art()

    def run(x: np.ndarray, y: np.ndarray, epsilon: float) -> np.ndarray:
        shape, num_classes = x.shape[1:], predict(x[:1]).shape[1]
        estimator = classification.BlackBoxClassifierNeuralNetwork(
            predict, shape, num_classes, channels_first=False, clip_values=bounds
        )
        sides = shape[:2]
        method = evasion.SquareAttack(
            estimator,
            norm=np.inf,
            eps=epsilon if norm == "linf" else epsilon / float(np.sqrt(np.prod(shape))),
            max_iter=steps,
            p_init=min(MAX_SQUARE, (min(sides) - 1) ** 2 / np.prod(sides)),  # smaller than images
            batch_size=len(x),
            verbose=False,
        )
        return method.generate(x, y)

    return run


def cross_entropy(y: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return the cross-entropy of each row, given one-hot labels."""
    return tf.nn.softmax_cross_entropy_with_logits(y, logits)


def difference_of_logits_ratio(y: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return (max of the other logits - logit of y) / (largest logit - third largest).

    Unlike cross-entropy, it has a gradient however large the logits are.
    """
    y = tf.cast(y, logits.dtype)
    largest = tf.math.top_k(logits, 3).values
    other = tf.reduce_max(logits - logits.dtype.max * y, axis=1)
    difference = other - tf.reduce_sum(y * logits, axis=1)
    return difference / (largest[:, 0] - largest[:, 2] + 1e-12)


class _Loss:
    """A loss of rows in the interface that ART expects: it sets `reduction` before a call."""

    reduction = "sum"

    def __init__(self, function: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]):
        self.function = function

    def __call__(self, y: Any, logits: tf.Tensor) -> tf.Tensor:
        values = self.function(tf.convert_to_tensor(y), logits)
        return values if self.reduction == "none" else tf.reduce_sum(values)


def import_art() -> tuple[Any, Any]:
    """Import ART's attacks and classifiers; `ValueError` with the command that installs it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that PyTorch is missing
            from art.attacks import evasion
            from art.estimators import classification
    except ImportError as error:
        raise ValueError("These attacks need ART: pip install 'jem_tf[report]'") from error
    return evasion, classification
