"""How a batch becomes a loss: what the members of the family differ in.

A training step calls three methods of an objective, in this order:

    negatives = objective.negatives(model, batch, seeds)     draw negative samples
    terms = objective.loss(model, batch, negatives)          compute the loss, inside a tape
    objective.after_update(model, negatives, terms)          keep what the next step needs, and log

Not here: the step itself (`model/jem.py`), how chains move (`sampling/`).
"""

from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf.replicas import mean_share, sum_over_replicas
from jem_tf._tf.state import State
from jem_tf.sampling import ChainStart, InputRange, ReplayBuffer, Sampler


class Batch(NamedTuple):
    """A batch as losses need it; `y` keeps the form that the user gave, for metrics."""

    x: tf.Tensor  # with the input noise of training
    y: tf.Tensor
    targets: tf.Tensor  # [batch, classes], zero for unlabelled rows
    labelled: tf.Tensor  # [batch], 1.0 or 0.0
    weight: tf.Tensor  # [batch]


class Terms(NamedTuple):
    """The loss of this replica, the logits of the data, and the vital signs of the step."""

    loss: tf.Tensor
    logits: tf.Tensor
    vitals: dict[str, tf.Tensor]


class Health(Protocol):
    """What records the vital signs of a training."""

    def record(self, samples: tf.Tensor, **values: tf.Tensor) -> None:
        """Add the vital signs of a step to their means."""


class TrainingModel(Protocol):
    """What an objective may ask of the model that it trains."""

    num_classes: int
    example_shape: tuple[int, ...]
    one_pass: bool  # whether energies and classification can share one forward pass
    input_range: InputRange
    start: ChainStart
    sampler: Sampler
    buffer: ReplayBuffer
    progress: State  # counters, and the step size of the sampler

    @property
    def losses(self) -> list[Any]:
        """Regularisation losses of the layers."""

    @property
    def health(self) -> Health:
        """What records the vital signs."""

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """Logits at inference."""

    def logits_in_shares(self, x: tf.Tensor) -> tf.Tensor:
        """The same, for shares of the rows side by side where that is faster."""

    def augmented(self, x: tf.Tensor) -> tf.Tensor:
        """`x` with the augmentation for cross-entropy."""

    def training_logits(self, x: tf.Tensor) -> tf.Tensor:
        """Logits for cross-entropy: in training mode, unless statistics are frozen."""

    def run_chains(
        self, x: tf.Tensor, seed: tf.Tensor, labels: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Run the chains of a training step from `x`."""

    def unit_log_density(self, labels: tf.Tensor | None) -> Any:
        """log p(x), or log p(x | y), as a function of x / scale."""

    def test_seed(self) -> tf.Tensor:
        """A seed for each batch of an evaluation."""

    def log(self, weight: tf.Tensor | float = 1.0, **values: tf.Tensor) -> None:
        """Add to the means that `fit` shows."""

    def log_loss(self, value: tf.Tensor, rows: tf.Tensor) -> None:
        """Add the loss of a batch to its mean."""


class Objective(State):
    """Base class of objectives; by itself the loss of a plain classifier.

    ```python
    class Mine(Objective):
        def loss(self, model, batch, negatives):
            terms = super().loss(model, batch, negatives)   # cross-entropy
            ...
            return terms._replace(loss=terms.loss + ...)
    ```
    """

    logged: tuple[str, ...] = ()  # means that `loss` logs beside `classification_loss`
    logged_in_test: tuple[str, ...] = ()  # those of them that `test` logs as well
    uses_chains = False  # whether training runs chains, whose health can be watched
    normalised = False  # whether `log_z` is known
    by_class = False  # whether chains belong to classes
    needs_labels = False  # whether some rows must have labels
    ramp = 0  # training steps in which the weight of the density rises

    def check(self, summary: Any) -> None:
        """Raise `ValueError` if this objective cannot learn from the data."""
        if self.needs_labels and (summary.y is None or (summary.y < 0).all()):
            raise ValueError(
                f"{type(self).__name__} learns from labels. Received: {len(summary.x)} rows, all "
                "marked -1"
            )

    def prepare(self, model: TrainingModel, summary: Any) -> None:
        """Learn from the data what `loss` needs; before the first step, outside of graphs."""

    def negatives(self, model: TrainingModel, batch: Batch, seeds: list[tf.Tensor]) -> Any:
        """Draw negative samples to contrast the data with; None if there are none."""

    def loss(self, model: TrainingModel, batch: Batch, negatives: Any) -> Terms:
        """Compute the loss of `batch`."""
        logits = model.training_logits(model.augmented(batch.x))
        loss, mean = self.cross_entropy(model, batch, logits)
        return Terms(loss + regularisation(model), logits, {"cross_entropy": mean})

    def after_update(self, model: TrainingModel, negatives: Any, terms: Terms) -> None:
        """Keep what the next step needs, and log; after the weights have changed."""
        rows = tf.cast(tf.shape(terms.logits)[0], tf.float32)
        model.log_loss(sum_over_replicas(terms.loss), rows)

    def unfinished(self, model: TrainingModel) -> str | None:
        """What has not been learned at the end of `fit`, in words; None if nothing is missing."""
        return None

    def test(self, model: TrainingModel, batch: Batch) -> tf.Tensor:
        """Log the losses of clean data that is not learned from; return the logits."""
        logits = model.logits(batch.x)
        loss, _ = self.cross_entropy(model, batch, logits)
        rows = tf.cast(tf.shape(logits)[0], tf.float32)
        model.log_loss(sum_over_replicas(loss + regularisation(model)), rows)
        return logits

    def cross_entropy(
        self, model: TrainingModel, batch: Batch, logits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """-log p(y | x), averaged over all labelled rows: this replica's share, and the mean."""
        log_p = maths.conditional_log_probability(logits)
        values = -tf.reduce_sum(batch.targets * log_p, axis=-1)
        weight = batch.weight * batch.labelled
        share = mean_share(values, weight)
        model.log(weight, classification_loss=values)
        return share, sum_over_replicas(share)


def regularisation(model: TrainingModel) -> tf.Tensor:
    """This replica's share of what layers add to the loss."""
    return sum(model.losses) / tf.distribute.get_strategy().num_replicas_in_sync
