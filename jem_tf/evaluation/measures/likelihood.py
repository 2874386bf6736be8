"""log Z by annealed importance sampling, and with it log p(x) in nats.

Not here: the chains, which are TensorFlow Probability's. p(x) is a density on the box that the
data spans: the model has seen no data outside it, and log Z need not exist there.
Z = integral over the box of exp(logsumexp_y f(x)[y]) dx.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from scipy.special import logsumexp

LOG_DENSITY_OUTSIDE = -1e10  # finite, so that zero times it is zero
LEAPFROG_STEPS = 5
MIN_ACCEPTANCE = 0.6  # below it, the step size is halved
FIRST_STEP_SIZE = 0.5
MAX_HALVINGS = 12
BOOTSTRAP_RESAMPLES = 200


@dataclass(frozen=True)
class LogZ:
    """An estimate of log Z: on average a lower bound, close if `effective` is not small.

    ```python
    log_p = -model.energy(x) - log_z(model).value
    ```
    """

    value: float
    error: float  # standard error, by bootstrap over the chains
    effective: float  # effective number of chains, by their importance weights
    acceptance: float


def log_z(model: Any, chains: int = 100, steps: int = 1000, seed: int = 0) -> LogZ:
    """Estimate log Z of `model`, a `JEM`, over the range of its data.

    `chains` chains move in `steps` Hamiltonian transitions from the uniform density to that of
    the model. The estimate improves with both.
    """
    if not model.input_range.adapted:
        raise ValueError("`log_z` needs the range of the data: call `fit` or `adapt` first.")
    if min(chains, steps) < 2:
        raise ValueError(
            f"`chains` and `steps` must be at least 2. Received: {chains=!r}, {steps=!r}"
        )
    anneal = _annealing(model, chains)
    key = tf.constant([seed, 3])
    step_size = FIRST_STEP_SIZE
    for _ in range(MAX_HALVINGS):  # short trials, until enough proposals are accepted
        trial_steps = tf.constant(max(2, steps // 20))
        acceptance = anneal(trial_steps, tf.constant(step_size, tf.float32), key)[1]
        if float(acceptance) >= MIN_ACCEPTANCE:
            break
        step_size /= 2.0
    weights, acceptance = anneal(tf.constant(steps), tf.constant(step_size, tf.float32), key)
    weights = weights.numpy().astype(np.float64)
    shape = model.input_range.low.shape
    log_volume = float(tf.reduce_sum(tf.math.log(tf.broadcast_to(model.input_range.scale, shape))))
    resampled = np.random.default_rng(seed).integers(chains, size=(BOOTSTRAP_RESAMPLES, chains))
    return LogZ(
        float(logsumexp(weights) - np.log(chains) + log_volume),
        float(logsumexp(weights[resampled], axis=1).std()),
        float(np.exp(2 * logsumexp(weights) - logsumexp(2 * weights))),
        float(acceptance),
    )


def _annealing(model: Any, chains: int) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """Return a graph function from steps, step size and seed to log weights and acceptance.

    Chains live in units of half the range of each feature, so that the box is [-1, 1].
    """
    from tensorflow_probability.python import mcmc

    scale, middle = model.input_range.scale, model.input_range.middle
    shape = model.input_range.low.shape
    axes = list(range(1, len(shape) + 1))
    density = model.unit_log_density(None)

    def proposal_log_density(unit: tf.Tensor) -> tf.Tensor:
        inside = tf.reduce_all(tf.abs(unit) <= 1.0, axis=axes)
        return tf.where(inside, -math.log(2.0) * shape.num_elements(), LOG_DENSITY_OUTSIDE)

    def target_log_density(unit: tf.Tensor) -> tf.Tensor:
        inside = tf.reduce_all(tf.abs(unit) <= 1.0, axis=axes)
        return tf.where(inside, density(unit + middle / scale), LOG_DENSITY_OUTSIDE)

    @tf.function(autograph=False)
    def anneal(
        steps: tf.Tensor, step_size: tf.Tensor, key: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        start_seed, chain_seed = tf.unstack(tf.random.split(key, 2))
        unit = tf.random.stateless_uniform([chains, *shape], start_seed, -1.0, 1.0)
        _, weights, results = mcmc.sample_annealed_importance_chain(
            steps,
            proposal_log_prob_fn=proposal_log_density,
            target_log_prob_fn=target_log_density,
            current_state=unit,
            make_kernel_fn=lambda f: mcmc.HamiltonianMonteCarlo(f, step_size, LEAPFROG_STEPS),
            seed=chain_seed,
        )
        # Of the last transition, where the density has the steepest peaks.
        log_ratio = results.inner_results.log_accept_ratio
        return weights, tf.reduce_mean(tf.exp(tf.minimum(log_ratio, 0.0)))

    return anneal
