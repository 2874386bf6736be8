"""What a trained JEM answers: energies, OOD scores, refined inputs and samples.

Not here: training (`model.py`). Arrays of any length go through the graph in batches; inside a
`tf.function` the same methods take and return tensors, so signatures can be exported from them.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf import cores as threads
from jem_tf._tf.cores import shares_of
from jem_tf.data.inputs import check_shape
from jem_tf.sampling.base import check_steps
from jem_tf.sampling.reuse import Cut, cut

BATCH_SIZE = 256
SAMPLE_STEPS = 400


class Scoring:
    """The public methods of `JEM` besides those of a Keras model."""

    backbone: Any
    sampler: Any
    start: Any
    progress: Any
    objective: Any
    num_classes: int
    example_shape: tuple[int, ...]
    built: bool
    _functions: dict[str, Any]

    def energy(self, x: Any, y: Any = None, batch_size: int = BATCH_SIZE) -> Any:
        """E(x), or E(x, y) for labels `y`; `[n]`."""

        def run(x: tf.Tensor, labels: tf.Tensor | None, _: None) -> tf.Tensor:
            logits = self.logits(x)
            return maths.energy(logits) if labels is None else maths.joint_energy(logits, labels)

        labels = y if y is None or not tf.executing_eagerly() else self._labels(y, len(x), "y")
        return self._batched("energy", run, batch_size, x, labels)

    def log_density(self, x: Any, batch_size: int = BATCH_SIZE) -> Any:
        """log p(x), normalised; `[n]`. For objectives that learn Z: `nce` and `fce`."""
        if not self.objective.normalised:
            raise ValueError(
                "Only nce and fce learn Z. `-energy(x)` is log p(x) + log Z, and `jem-tf loglik` "
                f"estimates Z. Received: a model of {type(self.objective).__name__}"
            )
        return -self.energy(x, batch_size=batch_size) - float(self.objective.log_z)

    def ood_score(self, x: Any, kind: str = "gradient_norm", batch_size: int = BATCH_SIZE) -> Any:
        """How typical each row of `x` is, higher for inputs like the training data; `[n]`.

        `kind` is "gradient_norm" (-||d log p(x) / dx||, x in units of half the data's range),
        "log_density" or "max_probability".
        """
        maths.check_ood_kind(kind)

        def run(x: tf.Tensor, *_: None) -> tf.Tensor:
            return maths.ood_score(self.logits, x, kind, self.start.scale)

        return self._batched(kind, run, batch_size, x)

    def refine(self, x: Any, steps: int = 10, seed: int = 0, batch_size: int = BATCH_SIZE) -> Any:
        """JEM-k: `x` after `steps` sampler steps towards the data, to be classified then."""
        check_steps(steps)

        def run(x: tf.Tensor, _: None, seed: tf.Tensor) -> tf.Tensor:
            return self.run_chains(x, seed, steps=steps)[0]

        return self._batched(f"refine_{steps}", run, batch_size, x, seed=seed)

    def sample(
        self,
        n: int,
        label: Any = None,
        steps: int = SAMPLE_STEPS,
        seed: int | None = None,
        batch_size: int = BATCH_SIZE,
    ) -> np.ndarray:
        """`n` samples of p(x), or of p(x | y) for `label`: one class, or one for each sample.

        Chains start anew and take `steps` steps; the same `seed` gives the same samples.
        """
        check_steps(steps)
        if not hasattr(n, "__index__") or n < 1:
            raise ValueError(f"`n` must be a positive integer. Received: n={n!r}")
        if not self.start.adapted:
            raise ValueError("`sample` needs to know the data: call `fit` or `adapt` first.")

        def run(count: tf.Tensor, labels: tf.Tensor | None, seed: tf.Tensor) -> tf.Tensor:
            start_seed, chain_seed = tf.unstack(tf.random.split(seed, 2))
            x = self.start.draw(tf.shape(count)[0], start_seed, labels)
            return self.run_chains(x, chain_seed, labels, steps)[0]

        labels = None if label is None else self._labels(label, n)
        seed = random.randint(0, 2**31 - 1) if seed is None else seed
        return self._batched(f"sample_{steps}", run, batch_size, np.empty(n), labels, seed)

    def run_chains(
        self,
        x: tf.Tensor,
        seed: tf.Tensor,
        labels: tf.Tensor | None = None,
        steps: Any = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Chains of the sampler from `x`, in the graph; they sample p(x | y) given `labels`.

        They move in units of half the data's range, so that one step size suits all features. The
        chains of training, with no `steps` of their own, may `reuse` gradients.
        """
        scale = self.start.scale
        step_size = tf.identity(self.progress["step_size"])
        density: Any = self.unit_log_density(labels)
        if steps is None:
            # Two at least: on a CPU, one fills the gaps that the other leaves.
            rows = shares_of(x, threads.shares(2) if self.sampler.side_by_side else 1)
            given = [None if labels is None else labels[share] for share in rows]
            density = [self._training_density(part) for part in given]
            density = density[0] if len(density) == 1 else density
        unit, diagnostics = self.sampler.run(density, x / scale, seed, steps, step_size)
        return unit * scale, diagnostics

    def _training_density(self, labels: tf.Tensor | None) -> Any:
        """That of the chains of training, in two parts where the sampler can make use of it."""
        parts = cut(self.backbone) if self.sampler.reuse > 1 else None
        if parts is None:
            return self.unit_log_density(labels)
        first, rest = (partial(part, training=False) for part in parts)
        return Cut(
            lambda unit: rows_through(first, unit * self.start.scale),
            lambda hidden: maths.log_density(rows_through(rest, hidden), labels),
        )

    def unit_log_density(self, labels: tf.Tensor | None) -> Callable[[tf.Tensor], tf.Tensor]:
        """log p(x), or log p(x | y), as a function of x / scale."""
        scale = self.start.scale
        return lambda unit: maths.log_density(self.logits(unit * scale), labels)

    def logits(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """What the network gives, in the graph."""
        return rows_through(partial(self.backbone, training=training), x)

    def logits_in_shares(self, x: tf.Tensor) -> tf.Tensor:
        """`logits`, of shares of the rows side by side where operations have one core each."""
        return tf.concat([self.logits(x[rows]) for rows in shares_of(x, threads.shares())], axis=0)

    def _labels(self, label: Any, n: int, name: str = "label") -> np.ndarray:
        labels = np.asarray(label)
        if labels.dtype.kind not in "iu" or labels.ndim > 1 or labels.shape not in ((), (n,)):
            raise ValueError(
                f"`{name}` must be one class or {n} of them, as integers. "
                f"Received: {name}={label!r}"
            )
        if labels.min() < 0 or labels.max() >= self.num_classes:
            raise ValueError(
                f"`{name}` must be between 0 and {self.num_classes - 1}. Received: {name}={label!r}"
            )
        return np.broadcast_to(labels, (n,)).astype(np.int32)

    def _batched(
        self,
        name: str,
        fn: Callable[..., tf.Tensor],
        batch_size: int,
        x: Any,
        labels: Any = None,
        seed: int | None = None,
    ) -> Any:
        """`fn(x, labels, seed)` over all rows, `batch_size` at a time; each batch has its seed."""
        if not tf.executing_eagerly():
            return fn(x, labels, None if seed is None else tf.constant([seed, 0]))
        if name not in self._functions:
            self._functions[name] = tf.function(fn, reduce_retracing=True)
        x = x if hasattr(x, "shape") else np.asarray(x)
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(
                f"`batch_size` must be a positive integer. Received: batch_size={batch_size!r}"
            )
        if not name.startswith("sample"):
            check_shape(x.shape[1:], self.example_shape if self.built else x.shape[1:])
        outputs = []
        for index, begin in enumerate(range(0, max(len(x), 1), batch_size)):
            rows = slice(begin, begin + batch_size)
            output = self._functions[name](
                tf.cast(np.asarray(x[rows]), tf.float32),
                None if labels is None else tf.constant(labels[rows]),
                None if seed is None else tf.constant([seed, index]),
            )
            outputs.append(output.numpy())
        return np.concatenate(outputs)


def rows_through(network: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """`network(x)` for any number of rows: a replica, or a share of the chains, may get none of the
    last batch, and convolutions of oneDNN give no rows the wrong shape."""
    if x.shape[0]:  # known, and not 0
        return network(x)
    rows = tf.shape(x)[0]
    lacking = 1 - tf.minimum(rows, 1)
    return network(tf.pad(x, [[0, lacking], *[[0, 0]] * (len(x.shape) - 1)]))[:rows]
