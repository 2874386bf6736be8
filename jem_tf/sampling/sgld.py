"""Stochastic gradient Langevin dynamics, unadjusted: the sampler of the paper.

Not here: the Metropolis correction (`mala.py`).

    x_t = x_{t-1} + a * d f(x_{t-1}) / dx + s * N(0, I),    s = sqrt(2 a T)

For small steps a the chains sample exp(f(x) / T). The paper's a = 1 and s = 0.01 are T = 5e-5.
"""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from jem_tf._tf import precision
from jem_tf._tf.cores import split_rows
from jem_tf._tf.randomness import fold_in, normal
from jem_tf._tf.replicas import mean_or_zero
from jem_tf.checks import check_known, check_positive
from jem_tf.energy import value_and_gradient
from jem_tf.sampling.base import AUTO, LogDensityFn, Sampler

TIED = "tied"
DTYPES = (AUTO, "float32", "bfloat16")
# What "auto" aims at: step size times curvature, a k. Half of it is the relative error of the
# variance of a Gaussian that an unadjusted sampler gives.
TARGET_STIFFNESS = 0.1
MIN_ACCEPTANCE = 0.8  # of the same moves as Metropolis-Hastings proposals, for many dimensions


class _Chain(NamedTuple):
    """The state of chains between two steps, and sums over the steps so far."""

    x: tf.Tensor
    value: tf.Tensor  # f, score and position before the last step
    score: tf.Tensor
    previous: tf.Tensor
    acceptance: tf.Tensor  # [n]
    stiffness: tf.Tensor  # [n]


@keras.saving.register_keras_serializable("jem_tf")
class SGLD(Sampler):
    """Unadjusted Langevin steps.

    ```python
    SGLD()                                        # step size tuned, temperature 0.05
    SGLD(steps=20, step_size=1.0, noise=0.01)     # the paper's setting
    SGLD(steps=10, step_size=1.0, noise=0.01, clip=0.1)    # proximal: a value moves 0.1 at most
    SGLD.langevin(steps=100, initial=0.1)         # the theory: T = 1, decaying step size
    ```

    Args:
        steps: updates in a chain.
        step_size: a number, a Keras schedule over the steps of a chain, or "auto": as large as the
            density allows, by its curvature along the steps and by the acceptance rate that they
            would have as Metropolis-Hastings proposals; needs two steps or more.
        noise: "tied" for sqrt(2 * step_size * temperature), or a standard deviation.
        clip: largest change of a value by the gradient in one step, before noise.
        temperature: T of the density exp(f(x) / T) that chains with tied noise sample. Training
            makes that density the data's, so f is T times its log density. With T = 1, energies
            are in nats, and so large that they crowd out the classifier; lower temperatures
            flatten them.
        dtype: in which the chains of a training compute the network: "float32", "bfloat16", or
            "auto", which is bfloat16 for networks with convolutions if the hardware computes it
            faster. Positions, noise and the layer of the logits are float32 in any case.
    """

    # Mean acceptance probability of the steps, step size times curvature, and root mean square
    # change of a value in a chain, in half ranges of the data.
    diagnostics = ("acceptance", "stiffness", "displacement")
    takes_shares = True

    def __init__(
        self,
        steps: int = 20,
        step_size: Any = AUTO,
        noise: float | str = TIED,
        clip: float | None = None,
        temperature: float = 0.05,
        dtype: str = AUTO,
    ):
        super().__init__(steps, step_size, temperature)
        check_known("dtype", dtype, DTYPES)
        if noise not in (TIED, 0):
            check_positive("noise", noise, 'zero, a positive number or "tied"')
        if self.tunes and steps < 2:
            raise ValueError(f'`step_size="auto"` needs two steps or more. Received: {steps=}')
        if self.tunes and noise != TIED:
            raise ValueError(
                '`step_size="auto"` needs `noise="tied"`: with fixed noise, the step size would '
                f"change the temperature of the density that is learned. Received: noise={noise!r}"
            )
        if clip is not None:
            check_positive("clip", clip, "None or a positive number")
        self.noise = noise
        self.clip = clip
        self.dtype = dtype

    @classmethod
    def langevin(
        cls, steps: int, initial: float = 0.1, final: float = 1e-3, power: float = 1.0
    ) -> "SGLD":
        """Langevin dynamics of the theory: polynomial decay of the step size, T = 1."""
        decay = keras.optimizers.schedules.PolynomialDecay(initial, steps, final, power)
        return cls(steps, decay, temperature=1.0)

    def uses_bfloat16(self, network: Any) -> bool:
        wanted = precision.hardware_gains() if self.dtype == AUTO else self.dtype == "bfloat16"
        return wanted and precision.suits(network)

    def noise_at(self, step_size: tf.Tensor) -> tf.Tensor:
        """The standard deviation of the noise of a step of this size."""
        if self.noise == TIED:
            return tf.sqrt(2.0 * step_size * self.temperature)
        return tf.constant(float(self.noise))

    def drift(self, score: tf.Tensor, step_size: tf.Tensor) -> tf.Tensor:
        """The change of `x` by the gradient in one step."""
        drift = step_size * score
        return drift if self.clip is None else tf.clip_by_value(drift, -self.clip, self.clip)

    def step(
        self, log_density: LogDensityFn, x: tf.Tensor, noise: tf.Tensor, step_size: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Update every chain in `x` once; return the positions, and f and the score before."""
        value, score = value_and_gradient(log_density, x)
        return x + self.drift(score, step_size) + self.noise_at(step_size) * noise, value, score

    def run(
        self,
        log_density: LogDensityFn | list[LogDensityFn],
        x: tf.Tensor,
        seed: tf.Tensor,
        steps: int | tf.Tensor | None = None,
        step_size: tf.Tensor | float | None = None,
        rounded: bool = False,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Run `steps` updates from `x`; return the ends of the chains and diagnostics to log.

        `seed` is `[2]` for all chains, or `[n, 2]` with one for each. Given a list of densities,
        each is that of its share of the rows, and the shares run side by side; their noise is
        that of a run of all rows together. Values of densities that are `rounded`, from networks
        in bfloat16, are not used; scores are.
        """
        total = self.steps if steps is None else steps
        densities = log_density if isinstance(log_density, list) else [log_density]

        def run_share(density: LogDensityFn, rows: slice) -> _Chain:
            def body(index: tf.Tensor, chain: _Chain) -> tuple[tf.Tensor, _Chain]:
                noise = normal(tf.shape(x), fold_in(seed, index))[rows]
                size = self.step_size_at(index, step_size)
                moved, value, score = self.step(density, chain.x, noise, size)
                moved = tf.ensure_shape(moved, chain.x.shape)  # the slice of noise has no shape
                size_before = self.step_size_at(tf.maximum(index - 1, 0), step_size)
                compared = tf.cast(index > 0, tf.float32)
                rise = _rise(chain, score) if rounded else value - chain.value
                accepted = self._acceptance(chain, rise, score, size_before)
                stiffness = self._stiffness(chain, score, size_before)
                return index + 1, _Chain(
                    moved,
                    value,
                    score,
                    chain.x,
                    chain.acceptance + compared * accepted,
                    chain.stiffness + compared * stiffness,
                )

            zeros = tf.zeros(tf.shape(x[rows])[:1])
            begin = _Chain(x[rows], zeros, tf.zeros_like(x[rows]), x[rows], zeros, zeros)
            # A `tf.while_loop`, because Keras traces `train_step` with AutoGraph off.
            return tf.while_loop(
                lambda index, _: index < total,
                body,
                (tf.constant(0), begin),
                parallel_iterations=1,
            )[1]

        shares = [run_share(*share) for share in zip(densities, split_rows(x, len(densities)))]
        ends, *_, acceptance, stiffness = (tf.concat(part, axis=0) for part in zip(*shares))
        compared = tf.maximum(tf.cast(total, tf.float32) - 1.0, 1.0)
        return ends, {
            "acceptance": mean_or_zero(acceptance) / compared,
            "stiffness": mean_or_zero(stiffness) / compared,
            "displacement": tf.sqrt(mean_or_zero((ends - x) ** 2)),
        }

    def _acceptance(
        self, chain: _Chain, rise: tf.Tensor, score: tf.Tensor, step_size: tf.Tensor
    ) -> tf.Tensor:
        """min(1, p(x') q(x | x') / (p(x) q(x' | x))) of the last move x to x', in which f rose by
        `rise`; `[n]`."""
        variance = tf.maximum(self.noise_at(step_size) ** 2, 1e-20)
        temperature = variance / (2.0 * step_size)
        forward = chain.x - chain.previous - self.drift(chain.score, step_size)
        backward = chain.previous - chain.x - self.drift(score, step_size)
        change = _sum_rows(forward**2 - backward**2) / (2.0 * variance)
        log_ratio = rise / temperature + change
        return tf.exp(tf.minimum(log_ratio, 0.0))

    def _stiffness(self, chain: _Chain, score: tf.Tensor, step_size: tf.Tensor) -> tf.Tensor:
        """Step size times curvature, by the change of the score in the last move; `[n]`."""
        change = _sum_rows((score - chain.score) ** 2)
        distance = _sum_rows((chain.x - chain.previous) ** 2)
        return step_size * tf.sqrt(change / tf.maximum(distance, 1e-20))

    def suitable_step_size(self, scores: tf.Tensor) -> tf.Tensor:
        """A step size with which the drift moves a value by 0.1 half ranges on average: inside the
        bounds of "auto", and with fixed noise at most the paper's 1."""
        size = 0.1 / tf.sqrt(tf.reduce_mean(scores**2))
        if self.tunes:
            return tf.clip_by_value(size, *self.step_size_bounds)
        return tf.minimum(size, 1.0)

    def tune(self, step_size: tf.Tensor, stats: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return the next step size: larger while the density is nearly straight along a step and
        the step would be accepted, else smaller. Both can be asked of chains in equilibrium as
        well as of chains on their way to it."""
        room = tf.math.log(TARGET_STIFFNESS / tf.maximum(stats["stiffness"], 1e-9))
        change = tf.minimum(room, 5.0 * (stats["acceptance"] - MIN_ACCEPTANCE))
        return self.bounded(step_size, 0.05 * tf.clip_by_value(change, -1.0, 1.0))

    def get_config(self) -> dict[str, Any]:
        mine = {"noise": self.noise, "clip": self.clip, "dtype": self.dtype}
        return {**super().get_config(), **mine}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "SGLD":
        config = {name: value for name, value in config.items() if name != "reuse"}
        if "temperature" not in config:  # version 0.1: tied noise meant T = 1
            config["temperature"] = 1.0
            if config["step_size"] == AUTO:
                config["step_size"] = 1.0  # times the value that was tuned, which stays
        return cls(**config)


def _rise(chain: _Chain, score: tf.Tensor) -> tf.Tensor:
    """The change of f in the last move by the trapezoidal rule, exact if f is quadratic; `[n]`."""
    return 0.5 * _sum_rows((score + chain.score) * (chain.x - chain.previous))


def _sum_rows(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(x, axis=list(range(1, len(x.shape))))
