"""Stochastic gradient Langevin dynamics, unadjusted: the sampler of the paper.

Not here: the Metropolis correction (`mala.py`).
x_t = x_{t-1} + step_size * d log p(x_{t-1}) / dx + noise * N(0, I)
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf.cores import shares_of
from jem_tf._tf.randomness import fold_in, normal
from jem_tf.energy import value_and_gradient
from jem_tf.sampling.base import LogDensityFn, Sampler, check_positive, mean
from jem_tf.sampling.reuse import Cut

TIED = "tied"
Settings = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]  # of a step, by its number


@keras.saving.register_keras_serializable("jem_tf")
class SGLD(Sampler):
    """Unadjusted Langevin steps.

    ```python
    SGLD()                                        # self-tuning step size
    SGLD(steps=20, step_size=1.0, noise=0.01)     # the paper's setting
    SGLD(steps=10, step_size=1.0, clip=0.1)       # proximal: no step moves a value further
    SGLD(steps=20, reuse=4)                       # training at the price of about 5 steps
    SGLD.langevin(steps=100, initial=0.1)         # the theory: decaying, with noise sqrt(2 size)
    ```

    Args:
        steps: updates in a chain.
        step_size: a number, a Keras schedule over the steps of a chain, or "auto".
        noise: standard deviation of the noise, or "tied" for sqrt(2 * step_size), with which
            small steps sample the density itself.
        clip: largest change of a value by the gradient in one step, before noise.
        reuse: how many steps of a training chain go by between two passes through the network;
            in those between, its first layer alone is computed. `steps` is a multiple of it.
    """

    # Share of chains that end above their start in log density, how far above they are in nats,
    # and how far from it, a value, in half ranges of the data.
    diagnostics = ("climbing", "drift", "displacement")
    side_by_side = True

    def __init__(
        self,
        steps: int = 20,
        step_size: Any = "auto",
        noise: float | str = 0.02,
        clip: float | None = None,
        reuse: int = 1,
    ):
        super().__init__(steps, step_size)
        if noise not in (TIED, 0):
            check_positive("noise", noise, 'zero, a positive number or "tied"')
        if clip is not None:
            check_positive("clip", clip, "None or a positive number")
        if not hasattr(reuse, "__index__") or reuse < 1 or steps % reuse:
            raise ValueError(
                f"`reuse` must be a positive integer that divides steps={steps}. "
                f"Received: reuse={reuse!r}"
            )
        self.noise = noise
        self.clip = clip
        self.reuse = int(reuse)

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
        """One update of every chain in `x`, and the log densities before it."""
        value, slope = value_and_gradient(log_density, x)
        return self._moved(x, slope, noise, step_size), value

    def _moved(
        self, x: tf.Tensor, slope: tf.Tensor, noise: tf.Tensor, step_size: tf.Tensor
    ) -> tf.Tensor:
        drift = step_size * slope
        if self.clip is not None:
            drift = tf.clip_by_value(drift, -self.clip, self.clip)
        return x + drift + (tf.sqrt(2.0 * step_size) if self.noise == TIED else self.noise) * noise

    def run(
        self,
        log_density: LogDensityFn | Cut | list[Any],
        x: tf.Tensor,
        seed: tf.Tensor,
        steps: int | tf.Tensor | None = None,
        step_size: tf.Tensor | float | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Run `steps` updates from `x`; the ends of the chains, and diagnostics to log.

        `seed` is `[2]` for all chains, or `[n, 2]` with one for each. A density that comes as a
        `Cut` is followed with `reuse`. Of a list of densities each is that of its share of the
        rows; the shares go on side by side, with the same numbers as together.
        """
        total = self.steps if steps is None else steps
        densities = log_density if isinstance(log_density, list) else [log_density]
        shares = shares_of(x, len(densities))

        def settings(rows: slice, index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            noise = normal(tf.shape(x), fold_in(seed, index))
            return noise[rows], self.step_size_at(index, step_size)

        parts = [
            self._follow(density, x[rows], partial(settings, rows), total)
            for density, rows in zip(densities, shares)
        ]
        ends, first, last = (tf.concat(part, axis=0) for part in zip(*parts))
        return ends, {
            "climbing": mean(tf.cast(last >= first, tf.float32)),
            "drift": mean(last - first),
            "displacement": tf.sqrt(mean((ends - x) ** 2)),
        }

    def _follow(
        self, log_density: LogDensityFn | Cut, x: tf.Tensor, settings: Settings, total: Any
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Where chains from `x` end, and their log densities before the first and the last pass
        through the network; `settings` has noise and size of a step."""

        def advance(index: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            if not isinstance(log_density, Cut):
                x, value = self.step(log_density, x, *settings(index))
                return index + 1, x, value
            for number in range(self.reuse):
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(x)
                    hidden = log_density.first(x)
                if number == 0:
                    value, slope = value_and_gradient(log_density.rest, hidden)
                drift = tape.gradient(hidden, x, output_gradients=slope)
                x = self._moved(x, drift, *settings(index))
                index += 1
            return index, x, value

        def body(index: tf.Tensor, x: tf.Tensor, first: tf.Tensor, _: tf.Tensor) -> tuple:
            following, moved, value = advance(index, x)
            x = tf.ensure_shape(moved, x.shape)  # which a share of the noise does not know
            return following, x, tf.where(index == 0, value, first), value

        zeros = tf.zeros(tf.shape(x)[:1])
        # A `tf.while_loop`, because Keras traces `train_step` with AutoGraph off.
        return tf.while_loop(
            lambda index, *_: index < total,
            body,
            (tf.constant(0), x, zeros, zeros),
            parallel_iterations=1,
        )[1:]

    def first_step_size(self, scores: tf.Tensor) -> tf.Tensor:
        """1, as in the paper, or less where that would throw chains across the data's range."""
        largest = 0.1 / tf.sqrt(tf.reduce_mean(scores**2))  # moves a value by 0.1 on average
        return tf.clip_by_value(largest, self.step_size_bounds[0], self.initial_step_size)

    def tune(self, step_size: tf.Tensor, gap: tf.Tensor, stats: dict[str, tf.Tensor]) -> tf.Tensor:
        """The next step size, given gap = mean log p(samples) - mean log p(data).

        Chains beyond the data's density (gap > 0) take smaller steps. Chains that lag behind
        it take larger ones as long as nearly all of them climb, and smaller ones where they
        do not: then steps are so large that they lead across the peaks, and larger ones would
        only make it worse.
        """
        climbs = tf.clip_by_value((stats["climbing"] - 0.97) / 0.03, -1.0, 1.0)
        return self.bounded(step_size, 0.02 * tf.tanh(-gap) * tf.where(gap < 0.0, climbs, 1.0))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "noise": self.noise, "clip": self.clip, "reuse": self.reuse}
