"""Constants of the parts of a composition: temperatures, log Z, and the level of `~`.

Not here: annealed importance sampling (`jem_tf/annealing.py`). Its chains begin at a Gaussian with
the mean and the covariance of samples of the part, and live in the units in which that Gaussian
is N(0, I): x = m + L u, so that log Z = log Z_u + log |L|.
"""

import dataclasses
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from jem_tf.annealing import LogZ, annealed_log_z

if TYPE_CHECKING:
    from jem_tf.composition.base import Composition

SAMPLES = 256  # of a part, for the Gaussian and for the level
CHAINS, STEPS = 100, 200
COVERAGE = 0.99  # share of the samples of a part above its level
MIN_EFFECTIVE = 0.1  # share of the chains
MAX_ERROR = 0.2  # nats; a share of 0.5 is then between 0.4 and 0.6


def temperature(model: Any) -> float:
    """T of the density exp(f / T) that `model` has learned: that of its sampler, and 1 for
    objectives without chains, whatever the sampler's is."""
    return sampler_temperature(model) if model.objective.uses_chains else 1.0


def sampler_temperature(model: Any) -> float:
    """T of the density exp(f / T) that chains of `model` sample: s^2 / 2a for a fixed noise s and
    step size a."""
    sampler = model.sampler
    noise = getattr(sampler, "noise", "tied")
    if isinstance(noise, str) or noise == 0:  # without noise, chains have no temperature
        return float(sampler.temperature)
    size = sampler.step_size_at(tf.constant(0), model.progress["step_size"])
    return float(noise**2 / (2.0 * size))


def estimate(part: "Composition", chains: int | None, steps: int | None, seed: int) -> LogZ:
    """Estimate log Z of `part` over all inputs, as its chains are not confined either."""
    from sklearn.covariance import LedoitWolf

    part.prepare()
    scale = part.first.model.input_range.scale
    unit = _samples(part, seed) / scale.numpy()
    shape, rows = unit.shape[1:], unit.reshape(SAMPLES, -1).astype(np.float64)
    fitted = LedoitWolf().fit(rows)
    spread = np.linalg.cholesky(fitted.covariance_ + 1e-9 * np.eye(rows.shape[1]))
    mean, factor = tf.constant(rows.mean(0), tf.float32), tf.constant(spread.T, tf.float32)
    size = rows.shape[1]

    def log_q(u: tf.Tensor) -> tf.Tensor:
        return -0.5 * (tf.reduce_sum(u**2, axis=-1) + size * math.log(2.0 * math.pi))

    def log_p(u: tf.Tensor) -> tf.Tensor:
        return part.unit_log_density(tf.reshape(mean + u @ factor, [-1, *shape]))

    def draw(n: int, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_normal([n, size], seed)

    found = annealed_log_z(log_q, log_p, draw, chains or CHAINS, steps or STEPS, seed)
    log_volume = float(np.log(np.broadcast_to(scale, shape)).sum() + np.log(np.diag(spread)).sum())
    poor = found.effective < MIN_EFFECTIVE * (chains or CHAINS) or found.error > MAX_ERROR
    if poor or not math.isfinite(found.value):
        warnings.warn(
            f"log Z of {part!r} is uncertain: {found.effective:.1f} effective of "
            f"{chains or CHAINS} chains, standard error {found.error:.2f} nats. Shares of | that "
            "use it may be wrong by more than that error. Call its "
            f"`log_z(steps={10 * (steps or STEPS)})` first.",
            stacklevel=2,
        )
    return dataclasses.replace(found, value=found.value + log_volume)


def level(part: "Composition") -> float:
    """The log density that most samples of `part` exceed."""
    log_p = part.log_density(_samples(part, seed=0))
    return float(np.quantile(log_p, 1.0 - COVERAGE))


def _samples(part: "Composition", seed: int) -> np.ndarray:
    samples = part.sample(SAMPLES, seed=seed)
    if not np.isfinite(samples).all():
        raise ValueError(
            f"Chains of {part!r} diverge, so that its constants cannot be estimated: make the "
            "`step_size` of its sampler smaller."
        )
    return samples
