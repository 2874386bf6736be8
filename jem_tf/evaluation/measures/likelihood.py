"""log Z by annealed importance sampling, and with it log p(x) in nats.

Not here: the chain, which is TensorFlow Probability's. p(x) is a density on the box that the data
spans: outside it nothing is known, and log Z need not exist.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import logsumexp

OUTSIDE = -1e10  # log density there: finite, so that zero times it is zero
LEAPFROGS = 5
ACCEPTED = 0.6  # share of the moves that the step size aims at


@dataclass(frozen=True)
class LogZ:
    """An estimate of log Z: a lower bound on average, close when `effective` is not small."""

    value: float
    error: float  # standard error, by bootstrap over the chains
    effective: float  # number of chains that the weights are worth
    acceptance: float


def log_z(model: Any, chains: int = 100, steps: int = 1000, seed: int = 0) -> LogZ:
    """log of the integral of exp(logsumexp f(x)) over the box of the data.

    `chains` chains go in `steps` Hamiltonian moves from the uniform density to the model's. The
    estimate gets better with more of either.
    """
    if not model.start.adapted:
        raise ValueError("`log_z` needs to know the data: call `fit` or `adapt` first.")
    if min(chains, steps) < 2:
        raise ValueError(
            f"`chains` and `steps` must be at least 2. Received: {chains=!r}, {steps=!r}"
        )
    from tensorflow_probability.python import mcmc

    low, high = (model.start[name] for name in ("low", "high"))
    scale, middle = model.start.scale, (low + high) / 2.0
    shape = tf.broadcast_to(scale, low.shape).shape
    axes = list(range(1, len(shape) + 1))
    density = model.unit_log_density(None)

    def reference(unit: tf.Tensor) -> tf.Tensor:
        inside = tf.reduce_all(tf.abs(unit) <= 1.0, axis=axes)
        return tf.where(inside, -math.log(2.0) * shape.num_elements(), OUTSIDE)

    def target(unit: tf.Tensor) -> tf.Tensor:
        inside = tf.reduce_all(tf.abs(unit) <= 1.0, axis=axes)
        return tf.where(inside, density(unit + middle / scale), OUTSIDE)

    @tf.function
    def anneal(count: int, size: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        start, moves = tf.unstack(tf.random.split(key, 2))
        unit = tf.random.stateless_uniform([chains, *shape], start, -1.0, 1.0)
        _, weights, results = mcmc.sample_annealed_importance_chain(
            count,
            proposal_log_prob_fn=reference,
            target_log_prob_fn=target,
            current_state=unit,
            make_kernel_fn=lambda f: mcmc.HamiltonianMonteCarlo(f, size, LEAPFROGS),
            seed=moves,
        )
        last = results.inner_results.log_accept_ratio  # of the last move, where peaks are steepest
        return weights, tf.reduce_mean(tf.exp(tf.minimum(last, 0.0)))

    key = tf.constant([seed, 3])
    size = 0.5
    for _ in range(12):  # a short way with ever smaller moves, until enough are accepted
        if float(anneal(max(2, steps // 20), tf.constant(size, tf.float32), key)[1]) >= ACCEPTED:
            break
        size /= 2.0
    weights, acceptance = anneal(steps, tf.constant(size, tf.float32), key)
    weights = weights.numpy().astype(np.float64)
    volume = float(tf.reduce_sum(tf.math.log(tf.broadcast_to(scale, shape))))
    drawn = np.random.default_rng(seed).integers(chains, size=(200, chains))
    spread = logsumexp(weights[drawn], axis=1)
    return LogZ(
        float(logsumexp(weights) - np.log(chains) + volume),
        float(spread.std()),
        float(np.exp(2 * logsumexp(weights) - logsumexp(2 * weights))),
        float(acceptance),
    )
