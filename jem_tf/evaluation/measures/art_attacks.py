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

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # of rows: one-hot labels, logits

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
    loss: Loss,
) -> Attack:
    evasion, _ = import_art()
    estimator = _estimator(model, num_classes, shape, loss)

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


def _estimator(model: FoolboxModel, num_classes: int, shape: tuple[int, ...], loss: Loss) -> Any:
    """ART's classifier, with the loss and its gradient in one graph each: with a tape around the
    graph of the network, whose forward pass must then return all activations, digits take three
    times as long."""
    rows = tf.TensorSpec([None, *shape], tf.float32)
    labels = tf.TensorSpec([None, num_classes], tf.float32)

    @tf.function(input_signature=[rows, labels])
    def losses(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return loss(y, model.network(x))

    @tf.function(input_signature=[rows, labels])
    def gradient(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.gradients(losses(x, y), x)[0]

    estimator = import_art()[1].TensorFlowV2Classifier(
        lambda x, training=False: model.network(x), num_classes, shape, clip_values=model.bounds
    )
    estimator.compute_loss = lambda x, y, **_: losses(x, y.astype(np.float32)).numpy()
    estimator.loss_gradient = lambda x, y: gradient(x, y.astype(np.float32)).numpy()
    return estimator


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
