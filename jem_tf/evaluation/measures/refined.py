"""JEM-k, a classifier of refined inputs: logits after k sampler steps from the input.

Not here: attacks (`foolbox_attacks.py`, `art_attacks.py`), and what curves say (`robustness.py`).
The sampler may hide the gradient from an attack, so that JEM-k counts as correct on the rows that
withstand three attacks: PGD through the unrolled sampler steps, PGD with the straight-through
gradient (BPDA, Athalye et al., 2018), and the square attack, which needs no gradient.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.energy import LogitsFn
from jem_tf.evaluation.measures.art_attacks import square
from jem_tf.evaluation.measures.foolbox_attacks import FoolboxModel, pgd
from jem_tf.evaluation.measures.robustness import AttackCurve, clip, to_curve, withstand

ATTACKS = ("straight_through", "unrolled", "square")  # the unrolled steps cost most


def network(jem: Any, k: int, draws: int = 1, straight_through: bool = False) -> LogitsFn:
    """Return JEM-k as a network: logits after `k` sampler steps from the input.

    The noise is new at every call. With several `draws`, the probabilities are averaged: the
    gradient of the result is then an estimate of the expectation over the noise, which a strong
    attack needs. With `straight_through`, the gradient at the refined input is passed to the
    input unchanged.
    """
    calls = tf.Variable(0, dtype=tf.int32)

    def logits_fn(x: tf.Tensor) -> tf.Tensor:
        copies = tf.repeat(x, draws, axis=0)
        seed = tf.stack([calls.assign_add(1), k])
        refined = jem.run_chains(copies, seed, steps=k)[0]
        if straight_through:
            refined = copies + tf.stop_gradient(refined - copies)
        log_p = tf.nn.log_softmax(tf.cast(jem.backbone(refined, training=False), tf.float32))
        grouped = tf.reshape(log_p, [tf.shape(x)[0], draws, -1])
        return tf.reduce_logsumexp(grouped, axis=1) - np.log(draws)

    return logits_fn


def attack(
    norm: str,
    jem: Any,
    k: int,
    x: np.ndarray,
    y: np.ndarray,
    bounds: tuple[float, float],
    epsilons: Sequence[float],
    steps: int,
    restarts: int = 1,
    draws: int = 1,
    square_steps: int = 50,
    kinds: Sequence[str] = ATTACKS,
) -> AttackCurve:
    """Measure the accuracy of JEM-k on images `x` `[n, ...]`, `y` `[n]` under all of `kinds`.

    Args:
        norm: "linf" or "l2".
        epsilons: sizes of the attacks; 0 is always measured.
        steps: of PGD.
        restarts: random starts of PGD.
        draws: of the noise, over which PGD averages.
        square_steps: of the square attack.
        kinds: some of `ATTACKS`.
    """
    x = clip(x, bounds)
    sizes = sorted({0.0, *map(float, epsilons)})
    straight_through = FoolboxModel(network(jem, k, draws, straight_through=True), bounds)
    unrolled = FoolboxModel(network(jem, k, draws), bounds)
    predict = FoolboxModel(network(jem, k), bounds).predict
    methods = {
        "straight_through": [pgd(norm, straight_through, steps)] * restarts,
        "unrolled": [pgd(norm, unrolled, steps)] * restarts,
        "square": [square(norm, predict, bounds, square_steps)],
    }
    attacks = [method for kind in kinds for method in methods[kind]]
    absolute = [size * unrolled.width for size in sizes]
    correct = withstand(attacks, predict, x, y, absolute, f"JEM-{k} {norm}")
    return to_curve(norm, sizes, correct, y, straight_through.find_zero_gradients(x, y))
