"""JEM: a Keras classifier trained as a joint energy-based model of inputs and labels.

Not here: the loss (`objectives/`), how chains move (`sampling/`), what a trained model answers
(`energy_model.py`), what energies mean (`energy.py`).
"""

import random
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import objectives
from jem_tf._tf import private, winograd
from jem_tf._tf.randomness import fold_in
from jem_tf.checks import check_kind, check_not_negative
from jem_tf.data import inputs
from jem_tf.data.labels import as_integers, targets_of
from jem_tf.detection.detector import Detector
from jem_tf.model import fitting
from jem_tf.model.backbone import depends_on_training
from jem_tf.model.batching import BATCH_SIZE
from jem_tf.model.classifiers import without_softmax
from jem_tf.model.encoding import encode_fit
from jem_tf.model.energy_model import EnergyModel
from jem_tf.model.health import Health
from jem_tf.objectives import Batch, Objective
from jem_tf.sampling import SGLD, ChainStart, ReplayBuffer, Sampler, Uniform, default_start


@keras.saving.register_keras_serializable("jem_tf")
class JEM(EnergyModel):
    """Wraps any Keras classifier that ends in logits.

    ```python
    model = jem_tf.JEM(backbone)
    model.compile(keras.optimizers.Adam(3e-3, use_ema=True), metrics=["accuracy"])
    model.fit(x_train, y_train, epochs=10)    # labels as integers or one-hot; -1: unlabelled

    model.predict(x)            # logits of the backbone
    model.energy(x)             # E(x)
    model.ood_score(x)          # higher = more like the training data
    model.sample(64, label=3)   # from p(x | y = 3)
    ```

    Args:
        backbone: a Keras model from inputs of any rank to logits `[batch, classes]`. Energies
            are always those of the network at inference; batch norm and dropout act on the
            classification term only, which costs a second forward pass over the data.
        sampler: `SGLD` or `MALA`.
        buffer: the `ReplayBuffer` of persistent chains.
        start: where chains start, `Uniform` or `GaussianMixture`. None: vectors near the data of
            each class, images uniformly.
        objective: what is learned: "joint" (the paper's), or another of `jem_tf.objectives`, by
            name or as an object.
        input_noise: standard deviation of the noise added to training data, in units of half
            the range of the data.
        augmentation: a Keras layer, such as `keras.layers.RandomFlip`, for the inputs of the
            classification term only; the density is learned from the data as it is (SADA-JEM).
            Augmentation in the data set is for both.
        frozen_statistics: cross-entropy is that of the network at inference, too. Batch norm keeps
            the statistics of the classifier that training begins with; dropout has no effect.
        detector: how inputs are found to be out of distribution; see `fit_detector`.
        encoder: a frozen Keras model from raw inputs to vectors. The backbone is then a head from
            these vectors to logits, and energies, chains and samples are those of vectors. All
            methods take raw inputs; `fit` encodes them once.
        seed: makes training repeatable; None takes one from Python's `random`, as Keras does.
    """

    def __init__(
        self,
        backbone: keras.Model,
        sampler: Sampler | None = None,
        buffer: ReplayBuffer | None = None,
        start: ChainStart | None = None,
        objective: str | Objective = "joint",
        input_noise: float = 0.1,
        augmentation: keras.layers.Layer | None = None,
        frozen_statistics: bool = False,
        detector: Detector | None = None,
        encoder: keras.Model | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        check_kind("sampler", sampler, Sampler)
        check_kind("buffer", buffer, ReplayBuffer)
        check_kind("start", start, ChainStart)
        check_kind("augmentation", augmentation, keras.layers.Layer)
        check_kind("detector", detector, Detector)
        check_not_negative(input_noise=input_noise)
        objective = objectives.get(objective)
        if sampler is None:  # without chains, the density that is learned is exp(f)
            sampler = SGLD() if objective.uses_chains else SGLD(temperature=1.0)
        if start is None and not objective.uses_chains:
            start = Uniform()
        super().__init__(backbone, sampler, start, detector or Detector(), encoder, **kwargs)
        self.objective = objective
        by_class = self.objective.by_class
        self.buffer = ReplayBuffer(per_class=by_class) if buffer is None else buffer
        if by_class and not self.buffer.per_class:
            raise ValueError(
                f"`{type(self.objective).__name__}` needs chains that belong to classes: pass "
                "ReplayBuffer(per_class=True), or no buffer. Received: per_class=False"
            )
        self.input_noise = float(input_noise)
        self.augmentation = augmentation
        self.frozen_statistics = bool(frozen_statistics)
        self.seed = random.randint(0, 2**31 - 1) if seed is None else int(seed)
        self.health = Health(self.progress, self.input_range)
        logged = ["classification_loss", *self.objective.logged]
        if self.objective.uses_chains:
            logged += ["chain_age", "step_size", *self.sampler.diagnostics]
        self._means = {name: keras.metrics.Mean(name) for name in logged}
        if private.is_layer_graph(backbone) and backbone.built:
            self.build(backbone.input_shape)

    @classmethod
    def from_classifier(cls, classifier: keras.Model, **options: Any) -> "JEM":
        """A JEM that begins with a trained `classifier`, whose layers it shares.

        ```python
        model = JEM.from_classifier(keras_model, input_noise=0.05)
        ```

        A softmax at the end is taken off. `options` are those of `JEM`.
        """
        return cls(without_softmax(classifier), **options)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        if self.start is None:
            self.start = default_start(self.example_shape, self.num_classes)
            self.start.input_range = self.input_range
        same = self.frozen_statistics or not depends_on_training(self.backbone)
        self.one_pass = self.augmentation is None and same

    def train_step(self, data: Any) -> dict[str, Any]:
        """One batch becomes one update; with the objective `joint` this is Algorithm 1."""
        batch = self._unpack(data)  # (x, y)
        *seeds, noise_seed = self._seeds(3)
        noise = tf.random.stateless_normal(tf.shape(batch.x), noise_seed)
        batch = batch._replace(x=batch.x + self.input_noise * self.input_range.scale * noise)
        with winograd.faster(self.backbone):
            negatives = self.objective.negatives(self, batch, seeds)  # x̂_0 from B, then x̂_η
            with tf.GradientTape() as tape:
                terms = self.objective.loss(self, batch, negatives)  # L_clf + L_gen
                loss = self.optimizer.scale_loss(terms.loss)
        gradients = tape.gradient(loss, self.trainable_weights)
        gradients, norm = self.health.make_finite(gradients, self.optimizer)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))

        terms.vitals["gradient_norm"] = norm
        self.objective.after_update(self, negatives, terms)  # x̂_η back into B
        self.progress["step"].assign_add(1)
        return self.shape_logs(self._results(batch, terms.logits))

    def test_step(self, data: Any) -> dict[str, Any]:
        """The same losses and metrics, of data that is not learned from."""
        batch = self._unpack(data)
        results = self._results(batch, self.objective.test(self, batch))
        training_only = {*self.sampler.diagnostics, *self.objective.logged}
        training_only -= set(self.objective.logged_in_test)
        return self.shape_logs({k: v for k, v in results.items() if k not in training_only})

    def augmented(self, x: tf.Tensor) -> tf.Tensor:
        """`x` with the augmentation for cross-entropy."""
        return x if self.augmentation is None else self.augmentation(x, training=True)

    def training_logits(self, x: tf.Tensor) -> tf.Tensor:
        """Logits for cross-entropy: in training mode, unless statistics are frozen."""
        return self.logits_in_shares(x) if self.frozen_statistics else self.logits(x, training=True)

    def adapt(self, data: Any, y: Any = None) -> None:
        """Learn the range of the inputs and where chains start, as Keras preprocessing layers do.

        `data` is an array of inputs, with labels `y` for starts that use classes, or a data set
        of batches. `fit` does this by itself, from all rows of arrays and the first batches of
        a data set, if `adapt` was not called.
        """
        data, y = self.encode_data(data, y)
        fitting.prepare(self, inputs.batches_of(data, y, batch_size=1024), relearn=True)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """As `keras.Model.fit`; first checks the data, adapts to it and fills the buffer."""
        self.check_compiled()
        if self._encoding is not None:
            x, y, batch_size = encode_fit(self._encoding, x, y, batch_size, kwargs)
        split, steps = kwargs.get("validation_split", 0.0), kwargs.get("steps_per_epoch")
        rows = fitting.batch_size_of(x, batch_size, steps, split)
        x, summary = fitting.before_fit(self, x, y, rows, epochs, kwargs)
        history = super().fit(x, as_integers(y), batch_size, epochs, **kwargs)
        fitting.warn_if_unhealthy(self, summary)
        if not self.objective.uses_chains and self.sampler.tunes:  # nothing has tuned it
            fitting.choose_step_size(self)
        return history

    def load_weights(self, *args: Any, **kwargs: Any) -> None:
        """As `keras.Model.load_weights`; chains, range and counters are restored too."""
        with self.distribute_strategy.scope():
            super().load_weights(*args, **kwargs)
        self.forget_traces()

    def log_density(self, x: Any, batch_size: int = BATCH_SIZE) -> Any:
        """log p(x), normalised; `[n]`. For objectives that learn Z: `nce` and `fce`."""
        if not self.objective.normalised:
            raise ValueError(
                "Only nce and fce learn Z. `-energy(x)` is log p(x) + log Z, and `jem-tf loglik` "
                f"estimates Z. Received: a model of {type(self.objective).__name__}"
            )
        return -self.energy(x, batch_size=batch_size) - float(self.objective.log_z)

    def stored_chains(self) -> np.ndarray | None:
        """All chains in the replay buffer, `[n, ...]`; None if there are none."""
        if not self.buffer.filled:
            return None
        chains = self.buffer.arrays()["chains"]
        return chains.reshape(-1, *chains.shape[2:])

    def test_seed(self) -> tf.Tensor:
        """A seed for each batch of an evaluation."""
        count = tf.cast(self._means["energy_data"].count, tf.int32)
        return fold_in(self._seeds(1, purpose=1)[0], count)

    def log(self, weight: tf.Tensor | float = 1.0, **values: tf.Tensor) -> None:
        """Add to the means that `fit` shows."""
        for name, value in values.items():
            _update_mean(self._means[name], value, weight)

    def log_loss(self, value: tf.Tensor, rows: tf.Tensor) -> None:
        """Add the loss of a batch to its mean."""
        _update_mean(self.loss_tracker, value, rows)

    def _results(self, batch: Batch, logits: tf.Tensor) -> dict[str, Any]:
        """Update the metrics of `compile`, and return all means."""
        if self.objective.uses_chains:
            step_size = self.sampler.step_size_at(tf.constant(0), self.progress["step_size"])
            self.log(chain_age=self.buffer.mean_age(), step_size=step_size)
        labelled = batch.labelled > 0
        parts = (tf.boolean_mask(v, labelled) for v in (batch.x, batch.y, logits, batch.weight))
        return self.compute_metrics(*parts)

    def _unpack(self, data: Any) -> Batch:
        x, y, weight = inputs.unpack(data)
        x = tf.cast(x, tf.float32)
        y, targets = targets_of(y, self.num_classes)
        labelled = tf.cast(tf.reduce_sum(targets, axis=-1) > 0, tf.float32)
        weight = tf.ones_like(labelled) if weight is None else tf.cast(weight, tf.float32)
        return Batch(x, y, targets, labelled, tf.reshape(weight, [-1]))

    def _seeds(self, count: int, purpose: int = 0) -> list[tf.Tensor]:
        """Counter-based: a pure function of the seed, the step, the replica and the purpose."""
        seed = fold_in(tf.constant([self.seed, purpose]), self.progress["step"])
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.unstack(tf.random.split(fold_in(seed, replica), count))

    def get_config(self) -> dict[str, Any]:
        names = ("backbone", "sampler", "buffer", "start", "objective", "augmentation", "detector")
        parts = {n: getattr(self, n) for n in (*names, "encoder")}
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            **{n: keras.saving.serialize_keras_object(part) for n, part in parts.items()},
            **{n: getattr(self, n) for n in ("input_noise", "frozen_statistics", "seed")},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "JEM":
        parts = {
            name: keras.saving.deserialize_keras_object(value, custom_objects=custom_objects)
            if isinstance(value, dict)
            else value
            for name, value in config.items()
        }
        return cls(**_upgrade_config(parts))


def _upgrade_config(parts: dict[str, Any]) -> dict[str, Any]:
    """The settings of files written by earlier versions, as they are called now."""
    parts.pop("sharpness", None)  # removed after version 0.1
    if "generative_weight" in parts:  # before there were objectives
        names = {"generative_weight": "weight", "lag": "lag", "energy_penalty": "energy_penalty"}
        options = {new: parts.pop(old) for old, new in names.items() if old in parts}
        parts["objective"] = objectives.Joint(**options)
    return parts


def _update_mean(metric: keras.metrics.Mean, value: tf.Tensor, weight: tf.Tensor | float) -> None:
    """Add what is finite: a non-finite batch must not hide the others of its epoch."""
    finite = tf.math.is_finite(value)
    metric.update_state(tf.where(finite, value, 0.0), weight * tf.cast(finite, tf.float32))
