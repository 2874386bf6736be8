"""How a batch becomes a loss: what the members of the family differ in.

A training step asks three things of an objective, in this order:

    contrast = objective.contrast(model, batch, seeds)       what is the data to be told from?
    terms = objective.loss(model, batch, x, contrast)        what does that cost? (inside a tape)
    objective.learned(model, contrast, terms)                what is kept for the next step?

Not here: the step itself (`model.py`), how chains move (`sampling/`).
"""

from typing import Any, NamedTuple

import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf.state import State, sum_replicas


class Batch(NamedTuple):
    """A batch as losses want it; `y` is kept in the form the user gave, for metrics."""

    x: tf.Tensor
    y: tf.Tensor
    targets: tf.Tensor  # [batch, classes], zero for unlabelled rows
    labelled: tf.Tensor  # [batch], 1.0 or 0.0
    weight: tf.Tensor  # [batch]


class Terms(NamedTuple):
    """The loss of this replica, the logits of the data, and what is to be watched."""

    loss: tf.Tensor
    logits: tf.Tensor
    vitals: dict[str, tf.Tensor]


class Objective(State):
    """Base of the objectives; by itself the loss of a plain classifier.

    ```python
    class Mine(Objective):
        def loss(self, model, batch, x, contrast):
            terms = super().loss(model, batch, x, contrast)   # cross-entropy
            ...
            return terms._replace(loss=terms.loss + ...)
    ```
    """

    logged: tuple[str, ...] = ()  # means that `loss` logs beside `classification_loss`
    chains = False  # whether training runs chains, whose health can be watched
    normalised = False  # whether `log_z` is known
    by_class = False  # whether chains belong to classes
    needs_labels = False  # whether some rows must have labels

    def check(self, summary: Any) -> None:
        """Raise `ValueError` if the data cannot be learned from in this way."""
        if self.needs_labels and (summary.y is None or (summary.y < 0).all()):
            raise ValueError(
                f"{type(self).__name__} learns from labels. Received: {len(summary.x)} rows, all "
                "marked -1"
            )

    def prepare(self, model: Any, summary: Any) -> None:
        """Learn from the data what `loss` needs; before the first step, outside of graphs."""

    def contrast(self, model: Any, batch: Batch, seeds: list[tf.Tensor]) -> Any:
        """What the data is told from, such as samples of the model; None for nothing."""

    def loss(self, model: Any, batch: Batch, x: tf.Tensor, contrast: Any) -> Terms:
        """The loss for the noisy inputs `x` of `batch`."""
        logits = model.classified(x)
        loss, mean = self.cross_entropy(model, batch, logits)
        return Terms(loss + penalty(model), logits, {"cross_entropy": mean})

    def learned(self, model: Any, contrast: Any, terms: Terms) -> None:
        """Keep what the next step needs, and log; after the weights have changed."""
        rows = tf.cast(tf.shape(terms.logits)[0], tf.float32)
        model.log_loss(sum_replicas(terms.loss), rows)

    def test(self, model: Any, batch: Batch) -> tf.Tensor:
        """Log the losses for clean data that is not learned from; the logits."""
        logits = model.logits(batch.x)
        loss, _ = self.cross_entropy(model, batch, logits)
        rows = tf.cast(tf.shape(logits)[0], tf.float32)
        model.log_loss(sum_replicas(loss + penalty(model)), rows)
        return logits

    def cross_entropy(
        self, model: Any, batch: Batch, logits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """-log p(y | x) as the mean over all labelled rows: this replica's part, and the whole."""
        log_p = maths.conditional_log_probability(logits)
        each = -tf.reduce_sum(batch.targets * log_p, axis=-1)
        part = mean_over_replicas(each, batch.weight * batch.labelled)
        model.log(batch.weight * batch.labelled, classification_loss=each)
        return part, sum_replicas(part)


def mean_over_replicas(values: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """This replica's part of the weighted mean over all of them; 0 where nothing has weight."""
    total = sum_replicas(tf.reduce_sum(weight))
    return tf.math.divide_no_nan(tf.reduce_sum(weight * values), total)


def penalty(model: Any) -> tf.Tensor:
    """This replica's part of what layers add to the loss."""
    return sum(model.losses) / tf.distribute.get_strategy().num_replicas_in_sync
