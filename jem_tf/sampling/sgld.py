"""Stochastic gradient Langevin dynamics, unadjusted: the sampler of the paper.

Not here: the Metropolis correction (`mala.py`).
x_t = x_{t-1} + step_size * d log p(x_{t-1}) / dx + noise * N(0, I)
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf.cores import split_rows
from jem_tf._tf.randomness import fold_in, normal
from jem_tf._tf.replicas import mean_or_zero
from jem_tf.checks import check_positive
from jem_tf.energy import value_and_gradient
from jem_tf.sampling.base import LogDensityFn, Sampler

TIED = "tied"


@keras.saving.register_keras_serializable("jem_tf")
class SGLD(Sampler):
    """Unadjusted Langevin steps.

    ```python
    SGLD()                                        # self-tuning step size
    SGLD(steps=20, step_size=1.0, noise=0.01)     # the paper's setting
    SGLD(steps=10, step_size=1.0, clip=0.1)       # proximal: a step changes a value by 0.1 at most
    SGLD.langevin(steps=100, initial=0.1)         # the theory: decaying, with noise sqrt(2 size)
    ```

    Args:
        steps: updates in a chain.
        step_size: a number, a Keras schedule over the steps of a chain, or "auto".
        noise: standard deviation of the noise, or "tied" for sqrt(2 * step_size), with which
            small steps sample the density itself.
        clip: largest change of a value by the gradient in one step, before noise.
    """

    # Share of chains that end above their start in log density, how far above they end in nats,
    # and the root mean square change of a value, in half ranges of the data.
    diagnostics = ("climbing", "drift", "displacement")
    takes_shares = True

    def __init__(
        self,
        steps: int = 20,
        step_size: Any = "auto",
        noise: float | str = 0.02,
        clip: float | None = None,
    ):
        super().__init__(steps, step_size)
        if noise not in (TIED, 0):
            check_positive("noise", noise, 'zero, a positive number or "tied"')
        if clip is not None:
            check_positive("clip", clip, "None or a positive number")
        self.noise = noise
        self.clip = clip

    @classmethod
    def langevin(
        cls, steps: int, initial: float = 0.1, final: float = 1e-3, power: float = 1.0
    ) -> "SGLD":
        """Langevin dynamics of the theory: polynomial decay of the step size, noise tied to it."""
        decay = keras.optimizers.schedules.PolynomialDecay(initial, steps, final, power)
        return cls(steps, decay, noise=TIED)

    def step(
        self, log_density: LogDensityFn, x: tf.Tensor, noise: tf.Tensor, step_size: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Update every chain in `x` once; return the new positions and the old log densities."""
        value, score = value_and_gradient(log_density, x)
        drift = step_size * score
        if self.clip is not None:
            drift = tf.clip_by_value(drift, -self.clip, self.clip)
        sigma = tf.sqrt(2.0 * step_size) if self.noise == TIED else self.noise
        return x + drift + sigma * noise, value

    def run(
        self,
        log_density: LogDensityFn | list[LogDensityFn],
        x: tf.Tensor,
        seed: tf.Tensor,
        steps: int | tf.Tensor | None = None,
        step_size: tf.Tensor | float | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Run `steps` updates from `x`; return the ends of the chains and diagnostics to log.

        `seed` is `[2]` for all chains, or `[n, 2]` with one for each. Given a list of densities,
        each is that of its share of the rows, and the shares run side by side; their noise is
        that of a run of all rows together.
        """
        total = self.steps if steps is None else steps
        densities = log_density if isinstance(log_density, list) else [log_density]

        def run_share(density: LogDensityFn, rows: slice) -> tuple[tf.Tensor, ...]:
            def advance(index: tf.Tensor, x_share: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                noise = normal(tf.shape(x), fold_in(seed, index))[rows]
                return self.step(density, x_share, noise, self.step_size_at(index, step_size))

            return _loop(advance, x[rows], total)

        parts = [run_share(*share) for share in zip(densities, split_rows(x, len(densities)))]
        ends, first, last = (tf.concat(part, axis=0) for part in zip(*parts))
        return ends, {
            "climbing": mean_or_zero(tf.cast(last >= first, tf.float32)),
            "drift": mean_or_zero(last - first),
            "displacement": tf.sqrt(mean_or_zero((ends - x) ** 2)),
        }

    def suitable_step_size(self, scores: tf.Tensor) -> tf.Tensor:
        """1, as in the paper, or less if that would throw chains across the range of the data."""
        largest = 0.1 / tf.sqrt(tf.reduce_mean(scores**2))  # moves a value by 0.1 on average
        return tf.clip_by_value(largest, self.step_size_bounds[0], self.initial_step_size)

    def tune(self, step_size: tf.Tensor, gap: tf.Tensor, stats: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return the next step size, given gap = mean log p(samples) - mean log p(data).

        Chains above the density of the data (gap > 0) take smaller steps. Chains below it take
        larger steps while nearly all of them climb. If they do not climb, steps are so large that
        they cross the peaks, and the next ones are smaller.
        """
        climbs = tf.clip_by_value((stats["climbing"] - 0.97) / 0.03, -1.0, 1.0)
        return self.bounded(step_size, 0.02 * tf.tanh(-gap) * tf.where(gap < 0.0, climbs, 1.0))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "noise": self.noise, "clip": self.clip}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "SGLD":
        return cls(**{name: value for name, value in config.items() if name != "reuse"})  # 0.1


def _loop(
    advance: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]], x: tf.Tensor, total: Any
) -> tuple[tf.Tensor, ...]:
    """Call `advance(index, x)` `total` times; return the ends of the chains, and their log
    densities before the first and the last step."""

    def body(index: tf.Tensor, x: tf.Tensor, first: tf.Tensor, _: tf.Tensor) -> tuple:
        following, value = advance(index, x)
        following = tf.ensure_shape(following, x.shape)  # a slice of the noise has lost its shape
        return index + 1, following, tf.where(index == 0, value, first), value

    zeros = tf.zeros(tf.shape(x)[:1])
    # A `tf.while_loop`, because Keras traces `train_step` with AutoGraph off.
    return tf.while_loop(
        lambda index, *_: index < total,
        body,
        (tf.constant(0), x, zeros, zeros),
        parallel_iterations=1,
    )[1:]
