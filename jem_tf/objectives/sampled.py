"""Objectives that contrast data with samples of the model itself, drawn by persistent chains.

Not here: the members of the family (`joint.py`, `factored.py`, `igebm.py`).

    d log p(x) / dw = d f(x) / dw - E_{x' ~ p}[d f(x') / dw],   f = log density + log Z
"""

import math
from typing import Any, NamedTuple

import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf.replicas import mean_share, sum_over_replicas
from jem_tf.checks import check_not_negative, check_positive
from jem_tf.objectives.base import Batch, Objective, Terms, TrainingModel, regularisation
from jem_tf.sampling.replay import Draw


class Samples(NamedTuple):
    """The ends of chains, where they started, and the diagnostics of the sampler."""

    x: tf.Tensor
    draw: Draw
    diagnostics: dict[str, tf.Tensor]


class GenerativeTerm(NamedTuple):
    """The generative loss of this replica, and over all replicas what it was computed from."""

    loss: tf.Tensor
    gap: tf.Tensor  # mean f of the samples less mean f of the data
    spread: tf.Tensor  # the unit in which the distance of a sample is measured
    trusted: tf.Tensor  # mean weight of the samples, between 0 and 1


class SampledObjective(Objective):
    """The loss w (E f(samples) - E f(data)), beside cross-entropy where `classifies`.

    Args:
        weight: how much log p(x) counts beside log p(y | x); the paper's is 1. A smaller one costs
            less accuracy, and learns the density more slowly.
        lag: how far the log density of a sample may lie below the mean of the data, in standard
            deviations of the log density over the data. Samples further below count less, and not
            at all from twice as far on. Chains that still come from noise, or that are lost, say
            nothing about the density, and lowering it where they are would only lengthen their
            way.
        energy_penalty: weight of the mean squared log densities of data and samples in the loss,
            which keeps energies near zero (Du and Mordatch).
        ramp: training steps in which `weight` rises from zero. A trained classifier has no density
            that chains could sample, and would be forgotten before it learns one.
        chain_ratio: chains for each row of data, at most 1. Where classification has a forward
            pass of its own, as with batch norm, as few rows of data are contrasted with them.
    """

    uses_chains = True
    logged = ("generative_loss", "energy_data", "energy_samples", "gap", "trusted")
    logged_in_test = logged
    classifies = True  # whether -log p(y | x) is part of the loss
    by_class = False  # whether p(x | y) is learned, by chains that belong to classes

    def __init__(
        self,
        weight: float = 1.0,
        lag: float = 4.0,
        energy_penalty: float = 0.0,
        ramp: int = 0,
        chain_ratio: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_not_negative(weight=weight, energy_penalty=energy_penalty, ramp=ramp)
        check_positive("lag", lag)
        if not 0 < chain_ratio <= 1:
            raise ValueError(
                f"`chain_ratio` must be above 0 and at most 1. Received: {chain_ratio=}"
            )
        self.weight, self.lag = float(weight), float(lag)
        self.energy_penalty = float(energy_penalty)
        self.ramp, self.chain_ratio = int(ramp), float(chain_ratio)

    def negatives(self, model: TrainingModel, batch: Batch, seeds: list[tf.Tensor]) -> Samples:
        """Start x̂_0 from the buffer B, or from noise with probability ρ; run η sampler steps."""
        rows = tf.shape(batch.x)[0]
        if self.chain_ratio < 1:
            rows = tf.cast(tf.math.ceil(self.chain_ratio * tf.cast(rows, tf.float32)), tf.int32)
        draw = model.buffer.draw(rows, model.start, seeds[0])
        x, diagnostics = model.run_chains(draw.x, seeds[1], draw.labels)
        return Samples(x, draw, diagnostics)

    def loss(self, model: TrainingModel, batch: Batch, negatives: Samples) -> Terms:
        """L_clf + w L_gen, with one forward pass for data and samples where that is possible."""
        two_passes = self.classifies and not self._one_pass(model)
        n = tf.shape(negatives.x if two_passes else batch.x)[0]  # rows to learn the density from
        both = model.logits_in_shares(tf.concat([batch.x[:n], negatives.x], axis=0))
        logits = self._classify(model, batch) if two_passes else both[:n]
        f = self._density(both, batch.targets[:n], negatives.draw.labels)
        return self._terms(model, batch, logits, f[:n], f[n:])

    def test(self, model: TrainingModel, batch: Batch) -> tf.Tensor:
        """Log the same losses, with the chains of the buffer as they are."""
        logits = model.logits(batch.x)
        f_data = self._density(logits, batch.targets)
        f_samples = f_data[:0]
        if model.buffer.filled:
            x, labels = model.buffer.peek(tf.shape(f_data)[0], model.test_seed())
            f_samples = self._density(model.logits(x), labels=labels)
        self._terms(model, batch, logits, f_data, f_samples)
        return logits

    def after_update(self, model: TrainingModel, negatives: Samples, terms: Terms) -> None:
        """Write x̂_η back into B, at the slots it came from; tune the step size of the sampler."""
        model.buffer.write(negatives.draw, negatives.x, model.sampler.steps)
        rows = tf.cast(tf.shape(negatives.x)[0], tf.float32)
        names, values = negatives.diagnostics.keys(), negatives.diagnostics.values()
        total, *sums = tf.unstack(sum_over_replicas(tf.stack([rows, *(v * rows for v in values)])))
        diagnostics = {name: value / total for name, value in zip(names, sums)}
        step_size = model.progress["step_size"]
        if model.sampler.tunes:
            step_size.assign(model.sampler.tune(step_size, diagnostics))
        model.log(**diagnostics)
        model.health.record(negatives.x, **terms.vitals, **diagnostics)

    def _one_pass(self, model: TrainingModel) -> bool:
        """Whether the logits that the density is computed from are those to classify with."""
        return model.one_pass

    def _classify(self, model: TrainingModel, batch: Batch) -> tf.Tensor:
        """The logits of a forward pass for classification alone."""
        return model.training_logits(model.augmented(batch.x))

    def _density(
        self,
        logits: tf.Tensor,
        targets: tf.Tensor | None = None,
        labels: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """f of rows of data with `targets`, then of samples with `labels`: log p(x), or, if the
        objective is `by_class`, log p(x | y) of rows that have a class."""
        marginal = maths.log_density(logits)
        if not self.by_class:
            return marginal
        parts = [] if targets is None else [targets]
        parts += [] if labels is None else [tf.one_hot(labels, logits.shape[-1])]
        classes = tf.concat(parts, axis=0)
        conditional = tf.reduce_sum(classes * tf.cast(logits, tf.float32), axis=-1)
        return tf.where(tf.reduce_sum(classes, axis=-1) > 0, conditional, marginal)

    def _terms(
        self,
        model: TrainingModel,
        batch: Batch,
        logits: tf.Tensor,
        f_data: tf.Tensor,
        f_samples: tf.Tensor,
    ) -> Terms:
        """The loss as the paper writes it, then what is logged."""
        classification, cross_entropy = self.cross_entropy(model, batch, logits)
        weight = batch.weight[: tf.shape(f_data)[0]]
        generative = self._generative_term(model, weight, f_data, f_samples)
        loss = self._weight_at(model.progress["step"]) * generative.loss
        loss = (classification + loss if self.classifies else loss) + regularisation(model)
        if self.energy_penalty > 0:
            squares = mean_share(f_data**2, weight)
            squares += mean_share(f_samples**2, tf.ones_like(f_samples))
            loss += self.energy_penalty * squares

        rows = tf.cast(tf.shape(logits)[0], tf.float32)
        total, generative_loss = tf.unstack(sum_over_replicas(tf.stack([loss, generative.loss])))
        model.log_loss(total, rows)
        model.log(rows, generative_loss=generative_loss)
        model.log(rows, gap=generative.gap, trusted=generative.trusted)
        model.log(energy_data=-f_data, energy_samples=-f_samples)
        vitals = {
            "cross_entropy": cross_entropy,
            "gap": generative.gap,
            "relative_gap": generative.gap / generative.spread,
            "trusted": generative.trusted,
        }
        return Terms(loss, logits, vitals)

    def _weight_at(self, step: tf.Tensor) -> tf.Tensor | float:
        """The weight of the generative term in training step `step`."""
        if self.ramp == 0:
            return self.weight
        return self.weight * tf.minimum(1.0, tf.cast(step + 1, tf.float32) / self.ramp)

    def _generative_term(
        self, model: TrainingModel, weight: tf.Tensor, f_data: tf.Tensor, f_samples: tf.Tensor
    ) -> GenerativeTerm:
        """L_gen = E f(samples) - E f(data), both weighted by the trust in the samples."""
        ones = tf.ones_like(f_samples)
        f_share = mean_share(f_data, weight)
        f_mean = sum_over_replicas(f_share)
        spread = self._spread(model, weight, f_data, f_mean)
        behind = f_mean - f_samples
        trust = tf.stop_gradient(tf.clip_by_value(2.0 - behind / (self.lag * spread), 0.0, 1.0))
        gap, trusted = tf.unstack(
            sum_over_replicas(tf.stack([mean_share(-behind, ones), mean_share(trust, ones)]))
        )
        loss = mean_share(trust * f_samples, ones) - trusted * f_share
        return GenerativeTerm(loss, gap, spread, trusted)

    def _spread(
        self, model: TrainingModel, weight: tf.Tensor, f_data: tf.Tensor, f_mean: tf.Tensor
    ) -> tf.Tensor:
        """The standard deviation of f over the data, at least that of a Gaussian of as many
        dimensions, T sqrt(D / 2), and at most T D, or 5 nats if that is more, for the logits of a
        classifier. Without these bounds it would follow f, which is flat before training, and
        grows without limit if chains are stuck."""
        variance = sum_over_replicas(mean_share((f_data - f_mean) ** 2, weight))
        dimensions, temperature = math.prod(model.example_shape), model.sampler.temperature
        bounds = temperature * math.sqrt(dimensions / 2.0), max(temperature * dimensions, 5.0)
        return tf.stop_gradient(tf.clip_by_value(tf.sqrt(variance), *bounds))

    def get_config(self) -> dict[str, Any]:
        names = ("weight", "lag", "energy_penalty", "ramp", "chain_ratio")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}
