"""The Metropolis-adjusted Langevin algorithm: exact where SGLD is approximate.

Not here: the kernel, which is TensorFlow Probability's.
Accept x' when u < min(1, p(x') q(x | x') / (p(x) q(x' | x))).
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf.randomness import fold_in
from jem_tf._tf.replicas import mean_or_zero
from jem_tf.sampling.base import AUTO, LogDensityFn, Sampler


@keras.saving.register_keras_serializable("jem_tf")
class MALA(Sampler):
    """Langevin proposals with a Metropolis-Hastings correction.

    ```python
    MALA(steps=20, step_size=1e-3)    # proposal: x + step_size * score + sqrt(2 step_size) * N
    MALA()                            # step size tuned towards 57 % acceptance
    ```

    Args:
        steps: updates in a chain.
        step_size: as for `SGLD`, whose `noise="tied"` is the same proposal.
        temperature: as for `SGLD`; by default the density of the logits itself.
    """

    diagnostics = ("acceptance", "displacement")
    row_seeds = False  # TFP's kernel has one seed for all chains
    target_acceptance = 0.574  # optimal for MALA (Roberts and Rosenthal 1998)

    def __init__(self, steps: int = 20, step_size: Any = AUTO, temperature: float = 1.0):
        super().__init__(steps, step_size, temperature)

    @property
    def step_size_bounds(self) -> tuple[float, float]:
        return 1e-7 / self.temperature, 1.0 / self.temperature

    @property
    def default_step_size(self) -> float:
        return 1e-3 / self.temperature if self.tunes else 1.0

    def run(
        self,
        log_density: LogDensityFn,
        x: tf.Tensor,
        seed: tf.Tensor,
        steps: int | tf.Tensor | None = None,
        step_size: tf.Tensor | float | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Run `steps` updates from `x`; return the ends of the chains and the acceptance rate."""
        from tensorflow_probability.python.mcmc import MetropolisAdjustedLangevinAlgorithm

        def kernel(index: tf.Tensor) -> MetropolisAdjustedLangevinAlgorithm:
            # TFP's drift is half its step size, times the score of the target.
            size = 2.0 * self.temperature * self.step_size_at(index, step_size)
            return MetropolisAdjustedLangevinAlgorithm(
                lambda x: log_density(x) / self.temperature, step_size=size
            )

        def body(index: tf.Tensor, x: tf.Tensor, results: Any, accepted: tf.Tensor) -> Any:
            step_seed = fold_in(seed, index)
            if callable(self.step_size):  # the results hold the drift of the previous step size
                results = kernel(index).bootstrap_results(x)
            x, results = kernel(index).one_step(x, results, seed=step_seed)
            share = tf.reduce_mean(tf.cast(results.is_accepted, tf.float32))
            return index + 1, x, results, accepted + share

        total, origin = self.steps if steps is None else steps, x

        def run_chains() -> tuple[tf.Tensor, tf.Tensor]:
            first = tf.constant(0)
            _, ends, _, accepted = tf.while_loop(
                lambda index, *_: index < total,
                body,
                (first, x, kernel(first).bootstrap_results(x), tf.constant(0.0)),
                parallel_iterations=1,
            )
            return ends, accepted / tf.cast(total, tf.float32)

        # A replica may get no rows of the last batch. TFP's kernel does not accept that.
        x, acceptance = tf.cond(tf.shape(x)[0] > 0, run_chains, lambda: (x, tf.constant(0.0)))
        displacement = tf.sqrt(mean_or_zero((x - origin) ** 2))
        return x, {"acceptance": acceptance, "displacement": displacement}

    def tune(self, step_size: tf.Tensor, stats: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return a larger step size if more proposals than the optimum are accepted."""
        return self.bounded(step_size, 0.1 * (stats["acceptance"] - self.target_acceptance))
