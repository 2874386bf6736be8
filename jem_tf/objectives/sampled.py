"""Objectives that tell data from samples of the model itself, drawn by persistent chains.

Not here: which of them is which (`joint.py`, `factored.py`, `igebm.py`).

    d log p(x) / dw = d f(x) / dw - E_{x' ~ p}[d f(x') / dw],   f = log density + log Z
"""

from typing import Any, NamedTuple

import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf.state import sum_replicas
from jem_tf.objectives.objective import Batch, Objective, Terms, penalty
from jem_tf.sampling.replay import Draw


class Samples(NamedTuple):
    """Where chains have come to, and how."""

    x: tf.Tensor
    draw: Draw
    diagnostics: dict[str, tf.Tensor]


class Chains(Objective):
    """The loss w (E f(samples) - E f(data)), beside cross-entropy where `classifies`.

    Args:
        weight: how much log p(x) counts beside log p(y | x); the paper's is 1. A smaller one costs
            less accuracy, and learns the density more slowly.
        lag: how far, in nats, the log density of a sample may be behind that of the data; further
            behind it counts less, and nothing from twice as far on. Chains that are still on
            their way from noise, or lost, say nothing about the density, and pushing it down
            where they are would only make their way longer.
        energy_penalty: weight of the mean squared log densities of data and samples in the loss,
            which keeps energies near zero (Du and Mordatch).
    """

    chains = True
    logged = ("generative_loss", "energy_data", "energy_samples")
    classifies = True  # whether -log p(y | x) is part of the loss
    by_class = False  # whether it is p(x | y) that is learned, and chains belong to classes

    def __init__(
        self, weight: float = 1.0, lag: float = 10.0, energy_penalty: float = 0.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        for name, value in {"weight": weight, "energy_penalty": energy_penalty}.items():
            if not value >= 0:
                raise ValueError(f"`{name}` must not be negative. Received: {name}={value!r}")
        if not lag > 0:
            raise ValueError(f"`lag` must be positive. Received: lag={lag!r}")
        self.weight, self.lag = float(weight), float(lag)
        self.energy_penalty = float(energy_penalty)

    def contrast(self, model: Any, batch: Batch, seeds: list[tf.Tensor]) -> Samples:
        """Start x̂_0 from the buffer B, or anew with probability ρ; η sampler steps to x̂_η."""
        draw = model.buffer.draw(tf.shape(batch.x)[0], model.start, seeds[0])
        x, diagnostics = model.run_chains(draw.x, seeds[1], draw.labels)
        return Samples(x, draw, diagnostics)

    def loss(self, model: Any, batch: Batch, x: tf.Tensor, contrast: Samples) -> Terms:
        n = tf.shape(x)[0]
        both = model.logits_in_shares(tf.concat([x, contrast.x], axis=0))
        logits = both[:n]
        if self.classifies and not model.one_pass:
            logits = model.classified(x)
        f = self._density(both, batch.targets, contrast.draw.labels)
        return self._terms(model, batch, logits, f[:n], f[n:])

    def test(self, model: Any, batch: Batch) -> tf.Tensor:
        """The same with the buffer's chains as they are."""
        logits = model.logits(batch.x)
        f_data = self._density(logits, batch.targets)
        f_samples = f_data[:0]
        if model.buffer.filled:
            x, labels = model.buffer.peek(tf.shape(f_data)[0], model.test_seed())
            f_samples = self._density(model.logits(x), labels=labels)
        self._terms(model, batch, logits, f_data, f_samples)
        return logits

    def learned(self, model: Any, contrast: Samples, terms: Terms) -> None:
        """Put x̂_η back into B, at the slots it came from; take other steps if that is due."""
        model.buffer.write(contrast.draw, contrast.x, model.sampler.steps)
        rows = tf.cast(tf.shape(contrast.x)[0], tf.float32)
        diagnostics = contrast.diagnostics
        total, *sums = tf.unstack(  # one exchange for all of them
            sum_replicas(tf.stack([rows, *(v * rows for v in diagnostics.values())]))
        )
        diagnostics = {k: v / total for k, v in zip(diagnostics, sums)}
        step_size = model.progress["step_size"]
        if model.sampler.tunes:
            step_size.assign(model.sampler.tune(step_size, terms.vitals["ahead"], diagnostics))
        model.log(**diagnostics)
        model.watch(contrast.x, **terms.vitals, **diagnostics)

    def _density(
        self,
        logits: tf.Tensor,
        targets: tf.Tensor | None = None,
        labels: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """f of rows of data with `targets`, then of samples with `labels`: log p(x), or, if that is
        learned, log p(x | y) of those that have a class."""
        marginal = maths.log_density(logits)
        if not self.by_class:
            return marginal
        parts = [] if targets is None else [targets]
        parts += [] if labels is None else [tf.one_hot(labels, logits.shape[-1])]
        classes = tf.concat(parts, axis=0)
        given = tf.reduce_sum(classes * tf.cast(logits, tf.float32), axis=-1)
        return tf.where(tf.reduce_sum(classes, axis=-1) > 0, given, marginal)

    def _terms(
        self,
        model: Any,
        batch: Batch,
        logits: tf.Tensor,
        f_data: tf.Tensor,
        f_samples: tf.Tensor,
    ) -> Terms:
        """The loss and what it is made of, logged."""
        log_p = maths.conditional_log_probability(logits)
        cross_entropy = -tf.reduce_sum(batch.targets * log_p, axis=-1)
        labelled, ones = batch.weight * batch.labelled, tf.ones_like(f_samples)
        # Counts over all replicas, so that the replicas' parts add up to the global means.
        labels, weights, chains = tf.unstack(
            sum_replicas(tf.stack([tf.reduce_sum(v) for v in (labelled, batch.weight, ones)]))
        )
        loss_clf = tf.math.divide_no_nan(tf.reduce_sum(batch.weight * cross_entropy), labels)
        f_mean = tf.math.divide_no_nan(tf.reduce_sum(batch.weight * f_data), weights)
        behind = sum_replicas(f_mean) - f_samples
        trust = tf.stop_gradient(tf.clip_by_value(2.0 - behind / self.lag, 0.0, 1.0))
        trusted = tf.math.divide_no_nan(sum_replicas(tf.reduce_sum(trust)), chains)
        loss_gen = tf.math.divide_no_nan(tf.reduce_sum(trust * f_samples), chains)
        loss_gen -= trusted * f_mean
        loss = self.weight * loss_gen
        loss = (loss_clf + loss if self.classifies else loss) + penalty(model)
        if self.energy_penalty > 0:
            squares = tf.math.divide_no_nan(tf.reduce_sum(batch.weight * f_data**2), weights)
            squares += tf.math.divide_no_nan(tf.reduce_sum(f_samples**2), chains)
            loss += self.energy_penalty * squares
        ahead = tf.clip_by_value(-behind, -self.lag, self.lag)  # lost chains count, but not more
        gaps = [tf.math.divide_no_nan(tf.reduce_sum(v), chains) for v in (ahead, -behind)]
        contrast, total, clf, ahead, gap = tf.unstack(
            sum_replicas(tf.stack([loss_gen, loss, loss_clf, *gaps]))
        )
        rows = tf.cast(tf.shape(logits)[0], tf.float32)
        model.log_loss(total, rows)
        model.log(rows, generative_loss=contrast)
        model.log(energy_data=-f_data, energy_samples=-f_samples)
        model.log(labelled, classification_loss=cross_entropy)
        vitals = {"gap": gap, "ahead": ahead, "trusted": trusted, "cross_entropy": clf}
        return Terms(loss, logits, vitals)

    def get_config(self) -> dict[str, Any]:
        numbers = {n: getattr(self, n) for n in ("weight", "lag", "energy_penalty")}
        return {**super().get_config(), **numbers}
