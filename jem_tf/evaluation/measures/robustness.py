"""How small a change of the input makes a classifier wrong.

Not here: the attacks (`foolbox_attacks.py`, `art_attacks.py`), and networks, which are functions
from inputs to logits. Sizes ε are in units where pixels go from 0 to 1: 8 / 255 is eight gray
levels. accuracy(ε) = share of rows that no attack of a size up to ε changed to another class.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from jem_tf.checks import check_known
from jem_tf.energy import LogitsFn
from jem_tf.evaluation.measures.art_attacks import apgd
from jem_tf.evaluation.measures.foolbox_attacks import (
    BATCH_SIZE,
    Attack,
    FoolboxModel,
    Predict,
    import_foolbox,
    pgd,
    run_black_box,
)
from jem_tf.evaluation.progress import bar

ATTACKS = {
    "linf": "PGD, every pixel changed by at most ε (white box)",
    "l2": "PGD, Euclidean length of the change at most ε (white box)",
    "apgd_linf": "APGD with cross-entropy and with DLR, sizes as linf (white box)",
    "apgd_l2": "APGD with cross-entropy and with DLR, sizes as l2 (white box)",
    "boundary": "boundary attack, Euclidean length, no gradients",
    "pointwise": "pointwise attack, Euclidean length, no gradients",
}
NORMS = ("linf", "l2")
WHITE_BOX = (*NORMS, "apgd_linf", "apgd_l2")
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
    restarts: int = 1,
    starts: np.ndarray | None = None,
    predict: Predict | None = None,
) -> AttackCurve:
    """Measure the accuracy of `network` on `x` `[n, ...]`, `y` `[n]` under an attack.

    Args:
        kind: one of `ATTACKS`.
        network: inputs to logits; None if only `predict` is available.
        bounds: the smallest and the largest valid pixel.
        epsilons: sizes of the attack; default `default_epsilons`. 0 is always measured.
        steps: of PGD, of APGD, or of the boundary attack.
        restarts: random starts of PGD and APGD. A row withstands an attack if no start succeeds.
        starts: inputs at which attacks without gradients start; some of them must be of other
            classes. Default `x`.
        predict: arrays to logits, for attacks without gradients if there is no `network`.
    """
    check_known("attack", kind, ATTACKS)
    x = clip(x, bounds)
    norm = norm_of(kind)
    epsilons = default_epsilons(norm, x.shape[1:]) if epsilons is None else epsilons
    sizes = sorted({0.0, *map(float, epsilons)})
    if kind in WHITE_BOX:
        if network is None:
            raise ValueError(f"The attack {kind!r} needs a network with gradients.")
        model = FoolboxModel(network, bounds)
        warnings = model.find_zero_gradients(x, y)
        attacks = [pgd(norm, model, steps)] if kind in NORMS else apgd(norm, model, x, steps)
        absolute = [size * model.width for size in sizes]
        correct = withstand(attacks * restarts, model.predict, x, y, absolute, kind)
    else:
        if predict is None:
            if network is None:
                raise ValueError("An attack needs a `network` or `predict`. Received: neither")
            predict = FoolboxModel(network, bounds).predict
        starts = x if starts is None else np.clip(starts, *bounds).astype(np.float32)
        distance, warnings = run_black_box(kind, predict, bounds, x, y, starts, steps)
        correct = distance > np.asarray(sizes)[:, np.newaxis]
    return to_curve(kind, sizes, correct, y, warnings)


def withstand(
    attacks: Sequence[Attack],
    predict: Predict,
    x: np.ndarray,
    y: np.ndarray,
    sizes: Sequence[float],
    about: str,
) -> np.ndarray:
    """Return whether each row is still classified correctly under all attacks, `[sizes, rows]`.

    `sizes` are in the units of `x`; the first is 0. An attack gets the rows that withstood the
    attacks before it, so that cheap attacks come first.
    """
    tf.random.set_seed(0)  # for the random starts of Foolbox
    np.random.seed(0)  # for those of ART
    correct = np.zeros((len(sizes), len(x)), bool)
    correct[0] = predict(x).argmax(-1) == y
    classified = np.flatnonzero(correct[0])
    begins = range(0, len(classified), BATCH_SIZE)
    jobs = [(begin, i) for begin in begins for i in range(1, len(sizes))]
    for begin, i in bar(jobs, len(jobs), about=f"attack {about}"):
        rows = classified[begin : begin + BATCH_SIZE]
        for method in attacks:
            if len(rows):
                changed = method(x[rows], y[rows], sizes[i])
                rows = rows[predict(changed).argmax(-1) == y[rows]]
        correct[i, rows] = True
    return correct


def to_curve(
    kind: str, sizes: Sequence[float], correct: np.ndarray, y: np.ndarray, warnings: list[str]
) -> AttackCurve:
    """Return the curve of `correct` `[sizes, rows]`, with a warning if the attack was weak."""
    if (np.diff(correct.mean(1)) > MAX_INCREASE).any():
        warnings.append("accuracy rises with ε in places: the attack is not strong enough")
    accuracy = np.logical_and.accumulate(correct).mean(1)  # an attack may also use a smaller change
    commonest = float(np.bincount(y).max() / len(y))
    return AttackCurve(kind, list(sizes), accuracy.tolist(), len(y), commonest, warnings)


def norm_of(kind: str) -> str:
    """Return the norm of the changes of an attack: "linf" or "l2"."""
    return "linf" if kind.endswith("linf") else "l2"


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
        for white in (by_kind[k] for k in ("l2", "apgd_l2") if k in by_kind and kind in by_kind):
            black = by_kind[kind]
            white_accuracy = np.interp(black.epsilons, white.epsilons, white.accuracy)
            # Two standard errors of the smaller set of rows.
            tolerance = max(0.1, 1.0 / np.sqrt(min(black.rows, white.rows)))
            if (np.asarray(black.accuracy) < white_accuracy - tolerance).any():
                signs.append(
                    f"the {kind} attack is stronger than {white.attack}, which uses the gradients"
                )
    return signs


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


def clip(x: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """Clip `x` to `bounds`; `ValueError` if it exceeds them by more than rounding."""
    tolerance = BOUNDS_TOLERANCE * (bounds[1] - bounds[0])
    if x.min() < bounds[0] - tolerance or x.max() > bounds[1] + tolerance:
        raise ValueError(
            f"Inputs must lie in `bounds` {bounds}. Received: {x.min():g} to {x.max():g}"
        )
    return np.clip(x, *bounds).astype(np.float32)
