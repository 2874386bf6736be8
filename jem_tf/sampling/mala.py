"""The Metropolis-adjusted Langevin algorithm: exact where SGLD is approximate.

Not here: the kernel, which is TensorFlow Probability's.
Accept x' when u < min(1, p(x') q(x | x') / (p(x) q(x' | x))).
"""

from typing import Any

import keras
import tensorflow as tf

from jem_tf._tf.randomness import fold_in
from jem_tf.sampling.base import LogDensityFn, Sampler, mean


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
    """

    initial_step_size = 1e-3
    step_size_bounds = (1e-7, 1.0)
    diagnostics = ("acceptance", "displacement")
    row_seeds = False  # TFP's kernel has one seed for all chains
    target_acceptance = 0.574  # optimal for MALA (Roberts and Rosenthal 1998)

    def __init__(self, steps: int = 20, step_size: Any = "auto"):
        super().__init__(steps, step_size)

    def run(
        self,
        log_density: LogDensityFn,
        x: tf.Tensor,
        seed: tf.Tensor,
        steps: int | tf.Tensor | None = None,
        step_size: tf.Tensor | float | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Run `steps` updates from `x`; the ends of the chains and the share accepted."""
        from tensorflow_probability.python.mcmc import MetropolisAdjustedLangevinAlgorithm

        def kernel(index: tf.Tensor) -> MetropolisAdjustedLangevinAlgorithm:
            size = 2.0 * self.step_size_at(index, step_size)  # TFP's drift is half its step size
            return MetropolisAdjustedLangevinAlgorithm(log_density, step_size=size)

        def body(index: tf.Tensor, x: tf.Tensor, results: Any, accepted: tf.Tensor) -> Any:
            step_seed = fold_in(seed, index)
            x, results = kernel(index).one_step(x, results, seed=step_seed)
            share = tf.reduce_mean(tf.cast(results.is_accepted, tf.float32))
            return index + 1, x, results, accepted + share

        total, origin = self.steps if steps is None else steps, x

        def chains() -> tuple[tf.Tensor, tf.Tensor]:
            start = tf.constant(0)
            _, moved, _, accepted = tf.while_loop(
                lambda index, *_: index < total,
                body,
                (start, x, kernel(start).bootstrap_results(x), tf.constant(0.0)),
                parallel_iterations=1,
            )
            return moved, accepted / tf.cast(total, tf.float32)

        # A replica may get no rows of the last batch, which TFP's kernel does not take.
        x, acceptance = tf.cond(tf.shape(x)[0] > 0, chains, lambda: (x, tf.constant(0.0)))
        return x, {"acceptance": acceptance, "displacement": tf.sqrt(mean((x - origin) ** 2))}

    def tune(self, step_size: tf.Tensor, _: tf.Tensor, stats: dict[str, tf.Tensor]) -> tf.Tensor:
        """The next step size: larger when more proposals than the optimum are accepted."""
        return self.bounded(step_size, 0.1 * (stats["acceptance"] - self.target_acceptance))
