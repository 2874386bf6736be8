"""The chains of a model: its sampler on its density, in units of half the range of the inputs.

In these units one step size suits all features. Not here: the updates (`sampling/`), and where
chains stay between training steps (`sampling/replay.py`).
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf import cores
from jem_tf._tf.state import State
from jem_tf.sampling import ChainStart, InputRange, Sampler

LogitsFn = Callable[[tf.Tensor], tf.Tensor]


class Chains:
    """Runs the chains of a model.

    Args:
        logits: the network at inference.
        sampler: how chains move.
        input_range: the unit in which they move.
        progress: holds the present `step_size`.
        bfloat16_logits: called in each training step; returns the network in bfloat16 for its
            chains, or None if they are to be in single precision.
    """

    def __init__(
        self,
        logits: LogitsFn,
        sampler: Sampler,
        input_range: InputRange,
        progress: State,
        bfloat16_logits: Callable[[], LogitsFn | None] = lambda: None,
    ):
        self._logits, self._sampler = logits, sampler
        self._bfloat16_logits = bfloat16_logits
        self._input_range, self._progress = input_range, progress

    def run(
        self,
        x: tf.Tensor,
        seed: tf.Tensor,
        labels: tf.Tensor | None = None,
        steps: Any = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Run chains from `x` in the graph; return their ends and the diagnostics of the sampler.

        They sample p(x), or p(x | y) given `labels`. Without `steps` these are the chains of a
        training step, which run in shares where that is faster.
        """
        scale = self._input_range.scale
        step_size = tf.identity(self._progress["step_size"])
        logits = self._bfloat16_logits() if steps is None else None
        options = {} if logits is None else {"rounded": True}
        density: Any = self.log_density(labels, logits)
        if steps is None and self._sampler.takes_shares:
            # At least two: on a CPU, one share computes while the other waits.
            shares = cores.split_rows(x, cores.num_shares(default=2))
            if len(shares) > 1:
                density = [
                    self.log_density(None if labels is None else labels[rows], logits)
                    for rows in shares
                ]
        unit, diagnostics = self._sampler.run(density, x / scale, seed, steps, step_size, **options)
        return unit * scale, diagnostics

    def log_density(
        self, labels: tf.Tensor | None, logits: LogitsFn | None = None
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        """log p(x), or log p(x | y), as a function of x / scale; with other `logits` if given."""
        scale, logits = self._input_range.scale, logits or self._logits
        return lambda unit: maths.log_density(logits(unit * scale), labels)

    def suitable_step_size(self, start: ChainStart, seed: tf.Tensor) -> float:
        """A step size with which chains from `start` stay in the range of the inputs at first."""
        x = start.draw(64, seed) / self._input_range.scale
        scores = maths.gradient(self.log_density(None), x)
        return float(self._sampler.suitable_step_size(scores))
