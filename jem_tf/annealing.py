"""log Z by annealed importance sampling (Neal, 2001): from a known density to an unknown one.

Not here: which densities (`evaluation/measures/likelihood.py`, `composition/constants.py`), and
the chains, which are TensorFlow Probability's.
Z = E[w] over chains from q to p; log w sums up differences of log p - log q on the way.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

LogDensityFn = Callable[[tf.Tensor], tf.Tensor]
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


def annealed_log_z(
    log_q: LogDensityFn,
    log_p: LogDensityFn,
    draw: Callable[[int, tf.Tensor], tf.Tensor],
    chains: int,
    steps: int,
    seed: int,
) -> LogZ:
    """Estimate log Z of exp(`log_p`), with chains from the normalised density exp(`log_q`).

    `draw(n, seed)` draws from that density. `chains` chains move in `steps` Hamiltonian
    transitions; the estimate improves with both.
    """
    if min(chains, steps) < 2:
        raise ValueError(
            f"`chains` and `steps` must be at least 2. Received: {chains=!r}, {steps=!r}"
        )
    anneal = _annealing(log_q, log_p, draw, chains)
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
    resampled = np.random.default_rng(seed).integers(chains, size=(BOOTSTRAP_RESAMPLES, chains))
    total = np.logaddexp.reduce(weights)
    return LogZ(
        float(total - math.log(chains)),
        float(np.logaddexp.reduce(weights[resampled], axis=1).std()),
        float(np.exp(2 * total - np.logaddexp.reduce(2 * weights))),
        float(acceptance),
    )


def _annealing(
    log_q: LogDensityFn,
    log_p: LogDensityFn,
    draw: Callable[[int, tf.Tensor], tf.Tensor],
    chains: int,
) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """Return a graph function from steps, step size and seed to log weights and acceptance."""
    from tensorflow_probability.python import mcmc

    @tf.function(autograph=False)
    def anneal(
        steps: tf.Tensor, step_size: tf.Tensor, key: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        start_seed, chain_seed = tf.unstack(tf.random.split(key, 2))
        _, weights, results = mcmc.sample_annealed_importance_chain(
            steps,
            proposal_log_prob_fn=log_q,
            target_log_prob_fn=log_p,
            current_state=draw(chains, start_seed),
            make_kernel_fn=lambda f: mcmc.HamiltonianMonteCarlo(f, step_size, LEAPFROG_STEPS),
            seed=chain_seed,
        )
        # Of the last transition, where the density has the steepest peaks.
        log_ratio = results.inner_results.log_accept_ratio
        return weights, tf.reduce_mean(tf.exp(tf.minimum(log_ratio, 0.0)))

    return anneal
