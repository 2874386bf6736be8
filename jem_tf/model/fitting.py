"""Before the first training step: data checked, its range learned, the buffer filled.

Not here: the step itself (`model.py`).
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf import distribution as distribute
from jem_tf.backbones.actnorm import initialise
from jem_tf.checks import check_logits
from jem_tf.data import inputs


class Fitting(keras.Model):
    """`adapt` and `fit` of `JEM`."""

    backbone: Any
    sampler: Any
    objective: Any
    buffer: Any
    start: Any
    progress: Any
    seed: int
    num_classes: int
    unit_log_density: Any
    _functions: dict[str, Any]

    def adapt(self, data: Any, y: Any = None) -> None:
        """Learn the range of the inputs and where chains start, as Keras preprocessing layers do.

        `data` is an array of inputs, with labels `y` for starts that use classes, or a data set
        of batches. `fit` does this by itself, from all rows of arrays and the first batches of
        a data set, if you did not.
        """
        self._prepare(inputs.batches_of(data, y, batch_size=1024), relearn=True)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """As `keras.Model.fit`; checks and adapts to the data, and fills the buffer, first."""
        self._assert_compile_called("fit")
        if self._compile_loss is not None:
            raise ValueError(
                "JEM has its own loss, -log p(x, y): leave `loss` out of `compile`. "
                f"Received: loss={self.loss!r}"
            )
        size = batch_size or 32
        seen = inputs.batches_of(x, y, size)
        if inputs.is_stream(x):
            wanted = (kwargs.get("steps_per_epoch") or inputs.BATCHES) * epochs
            wanted = 1 if self.buffer.filled else min(wanted, inputs.BATCHES)
            seen, x = inputs.look_ahead(x, wanted)
        summary = self._prepare(seen, need_labels=True)
        with self.distribute_strategy.scope():
            self.objective.check(summary)
            self.objective.prepare(self, summary)
        if not self.objective.chains:
            history = super().fit(x, y, batch_size, epochs, **kwargs)
            if self.sampler.tunes:  # nothing has tuned it: one that suits the network now
                self.progress.assign(step_size=np.float32(self.careful_step_size()))
            return history
        batch = -(-summary.batch // self.distribute_strategy.num_replicas_in_sync)
        if not self.buffer.filled or self.buffer.outgrown(batch):
            per_epoch = inputs.batches_per_epoch(
                x, size, kwargs.get("steps_per_epoch"), kwargs.get("validation_split", 0.0)
            )
            epochs_left = epochs - kwargs.get("initial_epoch", 0)
            self._fill(batch, None if per_epoch is None else per_epoch * epochs_left)
        self.buffer.check_capacity(batch)
        return super().fit(x, y, batch_size, epochs, **kwargs)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """As Keras does it, but for more than one worker, where it fails (keras issue 20585):
        it reduces a batch over workers, whose parts may differ in size."""
        if iterator is not None and distribute.is_multi_worker(self.distribute_strategy):
            _, _, batches = next(iter(iterator))
            local = self.distribute_strategy.experimental_local_results
            data_batch = tf.nest.map_structure(lambda v: local(v)[0], next(batches))
            iterator = None
        super()._maybe_symbolic_build(iterator, data_batch)

    def _logs(self, results: dict[str, Any]) -> dict[str, Any]:
        """`results` of a step as Keras wants them: with more than one worker it takes their means
        over axis 0 (keras issue 20585), which single numbers do not have."""
        if not distribute.is_multi_worker(self.distribute_strategy):
            return results
        return {name: tf.reshape(value, [1]) for name, value in results.items()}

    def _fill(self, batch: int, steps: int | None) -> None:
        """Fill the buffers for `steps` steps of `batch` on a replica; choose the step size."""
        with self.distribute_strategy.scope():
            seed = tf.constant([self.seed, 2])
            self.buffer.start_anew(self.start, seed, batch, steps, self.num_classes)
        if self.sampler.tunes:
            self.progress.assign(step_size=np.float32(self.careful_step_size()))
        self._forget_traces()

    def careful_step_size(self) -> float:
        """One with which chains that start now stay in the range of the data for a while."""
        starts = self.start.draw(64, tf.constant([self.seed, 2])) / self.start.scale
        scores = maths.gradient(self.unit_log_density(None), starts)
        return float(self.sampler.first_step_size(scores))

    def _prepare(
        self, batches: Iterator[Any], need_labels: bool = False, relearn: bool = False
    ) -> inputs.Summary:
        """Check the data, and learn from it what is not known yet."""
        first = next(batches, None)
        if first is None:
            raise ValueError("The data set is empty: there is no row to learn from.")
        if need_labels and first[1] is None:
            raise ValueError("JEM needs labels `y`; mark unlabelled rows with -1. Received: y=None")
        rows = np.asarray(first[0])
        inputs.check_rows(rows)
        with self.distribute_strategy.scope():
            if not self.built:
                self.build((None, *rows.shape[1:]))
            inputs.check_shape(rows.shape[1:], self.example_shape)
            initialise(self.backbone, rows.astype(np.float32))
            check_logits(self.backbone(rows[:32].astype(np.float32), training=False).numpy())
        summary = inputs.summarise(chain([first], batches), self.num_classes)
        if relearn or not self.start.adapted:
            with self.distribute_strategy.scope():
                self.start.adapt(summary.x, summary.y, self.num_classes, summary.bounds)
            self._forget_traces()
        return summary

    def load_weights(self, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.load_weights`; chains, range and counters come back too."""
        with self.distribute_strategy.scope():
            super().load_weights(*args, **kwargs)
        self._forget_traces()

    def _forget_traces(self) -> None:
        """Graphs traced before there was this range or buffer do not know of it."""
        self._functions.clear()
        if self.train_function is not None:
            self.make_train_function(force=True)
        if self.test_function is not None:
            self.make_test_function(force=True)
