"""How small a change of the input makes a classifier wrong, with Foolbox's attacks.

Not here: the attacks (`foolbox_attacks.py`), and networks, which are functions from inputs to
logits. Sizes ε are in units where pixels go from 0 to 1: 8 / 255 is eight gray levels.
accuracy(ε) = share of rows that no attack of a size up to ε changed to another class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.checks import check_known
from jem_tf.energy import LogitsFn
from jem_tf.evaluation.measures.foolbox_attacks import (
    FoolboxModel,
    Predict,
    import_foolbox,
    run_black_box,
    run_pgd,
)
from jem_tf.evaluation.progress import bar

ATTACKS = {
    "linf": "PGD, every pixel changed by at most ε (white box)",
    "l2": "PGD, Euclidean length of the change at most ε (white box)",
    "boundary": "boundary attack, Euclidean length, no gradients",
    "pointwise": "pointwise attack, Euclidean length, no gradients",
}
WHITE_BOX = ("linf", "l2")
EPSILONS = {
    "linf": tuple(e / 255 for e in (0, 2, 4, 8, 12, 16, 26, 40, 64)),
    "l2": (0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0),
}
BOUNDS_TOLERANCE = 1e-4  # share of the range: resizing rounds
MAX_INCREASE = 0.05  # of accuracy with ε, before the attack counts as too weak


@dataclass(frozen=True)
class AttackCurve:
    """Accuracy against the size of an attack.

    ```python
    curve = attack("linf", network, x, y)
    dict(zip(curve.epsilons, curve.accuracy))
    ```
    """

    attack: str
    epsilons: list[float]
    accuracy: list[float]  # under all attacks up to each size
    rows: int
    commonest: float  # share of the most common class: the accuracy of a constant answer
    warnings: list[str]


def attack(
    kind: str,
    network: LogitsFn | None,
    x: np.ndarray,
    y: np.ndarray,
    bounds: tuple[float, float] = (-1.0, 1.0),
    epsilons: Sequence[float] | None = None,
    steps: int = 40,
    starts: np.ndarray | None = None,
    classifier: LogitsFn | None = None,
    predict: Predict | None = None,
) -> AttackCurve:
    """Measure the accuracy of `network` on `x` `[n, ...]`, `y` `[n]` under an attack.

    Args:
        kind: one of `ATTACKS`.
        network: inputs to logits; None if only `predict` is available.
        bounds: the smallest and the largest valid pixel.
        epsilons: sizes of the attack; default `default_epsilons`. 0 is always measured.
        steps: of PGD, or of the boundary attack.
        starts: inputs at which attacks without gradients start; some of them must be of other
            classes. Default `x`.
        classifier: classifies the attacked inputs, if it is not `network`: a noisy classifier is
            attacked through an average of its outputs.
        predict: arrays to logits, for attacks without gradients if there is no `network`.
    """
    check_known("attack", kind, ATTACKS)
    x = _clip(x, bounds)
    norm = kind if kind in WHITE_BOX else "l2"
    sizes = sorted({0.0, *(default_epsilons(norm, x.shape[1:]) if epsilons is None else epsilons)})
    if kind in WHITE_BOX:
        if network is None:
            raise ValueError(f"The attack {kind!r} needs a network with gradients.")
        model = FoolboxModel(network, bounds)
        correct, warnings = run_pgd(kind, model, x, y, sizes, steps, classifier or model.network)
    else:
        if predict is None:
            if network is None:
                raise ValueError("An attack needs a `network` or `predict`. Received: neither")
            predict = FoolboxModel(network, bounds).predict
        starts = x if starts is None else np.clip(starts, *bounds).astype(np.float32)
        distance, warnings = run_black_box(kind, predict, bounds, x, y, starts, steps)
        correct = distance > np.asarray(sizes)[:, np.newaxis]
    if (np.diff(correct.mean(1)) > MAX_INCREASE).any():
        warnings.append("accuracy rises with ε in places: the attack is not strong enough")
    accuracy = np.logical_and.accumulate(correct).mean(1)  # an attack may also use a smaller change
    commonest = float(np.bincount(y).max() / len(y))
    return AttackCurve(kind, list(sizes), accuracy.tolist(), len(x), commonest, warnings)


def default_epsilons(norm: str, shape: tuple[int, ...]) -> tuple[float, ...]:
    """Return `EPSILONS`, and a size at which every image can be changed to plain gray."""
    values = float(np.prod(shape))
    return *EPSILONS[norm], 0.5 if norm == "linf" else 0.5 * np.sqrt(values)


def find_masked_gradients(curves: Sequence[AttackCurve]) -> list[str]:
    """Return signs that the attacks of `curves` failed because of masked gradients.

    Two signs are known: accuracy is left at a size at which all inputs can be made the same, and
    attacks without gradients are stronger than attacks with them.
    """
    signs = []
    by_kind = {curve.attack: curve for curve in curves}
    for curve in curves:
        if curve.attack in WHITE_BOX and curve.accuracy[-1] > curve.commonest + 0.05:
            signs.append(
                f"{curve.attack}: accuracy is still {curve.accuracy[-1]:.0%} at "
                f"ε = {curve.epsilons[-1]:.2g}, where every input can be made plain gray: the "
                "attack is too weak, or gradients are masked"
            )
    for kind in ("boundary", "pointwise"):
        if kind in by_kind and "l2" in by_kind:
            black, white = by_kind[kind], by_kind["l2"]
            white_accuracy = np.interp(black.epsilons, white.epsilons, white.accuracy)
            # Two standard errors of the smaller set of rows.
            tolerance = max(0.1, 1.0 / np.sqrt(min(black.rows, white.rows)))
            if (np.asarray(black.accuracy) < white_accuracy - tolerance).any():
                signs.append(f"the {kind} attack is stronger than PGD, which uses the gradients")
    return signs


def refined_network(jem: Any, steps: int, draws: int = 1) -> LogitsFn:
    """Return JEM-k as a network: logits after `steps` sampler steps from the input.

    The noise is new at every call. With several `draws`, the probabilities are averaged: the
    gradient of the result is then an estimate of the expectation over the noise, which a strong
    attack needs.
    """
    calls = tf.Variable(0, dtype=tf.int32)

    def network(x: tf.Tensor) -> tf.Tensor:
        copies = tf.repeat(x, draws, axis=0)
        seed = tf.stack([calls.assign_add(1), steps])
        refined = jem.run_chains(copies, seed, steps=steps)[0]
        log_p = tf.nn.log_softmax(tf.cast(jem.backbone(refined, training=False), tf.float32))
        grouped = tf.reshape(log_p, [tf.shape(x)[0], draws, -1])
        return tf.reduce_logsumexp(grouped, axis=1) - np.log(draws)

    return network


def distal_adversarials(
    network: LogitsFn,
    classes: np.ndarray,
    shape: tuple[int, ...],
    bounds: tuple[float, float] = (-1.0, 1.0),
    steps: int = 200,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Change noise until `network` is confident of each of `classes`.

    Returns the images `[classes, *shape]` and the confidences `[classes]`.
    """
    foolbox = import_foolbox()
    model = FoolboxModel(network, bounds)
    noise = np.random.default_rng(seed).uniform(*bounds, (len(classes), *shape))
    ascent = foolbox.attacks.LinfPGD(abs_stepsize=model.width / 255, steps=1, random_start=False)
    x = tf.constant(noise, tf.float32)
    target = foolbox.criteria.TargetedMisclassification(tf.constant(classes, tf.int64))
    for _ in bar(range(steps), steps, about="distal adversarials"):
        x = ascent.run(model.with_gradients, x, target, epsilon=model.width)
    p = tf.nn.softmax(model.network(x)).numpy()
    return x.numpy(), p[np.arange(len(classes)), classes]


def _clip(x: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    tolerance = BOUNDS_TOLERANCE * (bounds[1] - bounds[0])
    if x.min() < bounds[0] - tolerance or x.max() > bounds[1] + tolerance:
        raise ValueError(
            f"Inputs must lie in `bounds` {bounds}. Received: {x.min():g} to {x.max():g}"
        )
    return np.clip(x, *bounds).astype(np.float32)
