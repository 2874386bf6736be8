"""JEM: a Keras classifier trained as a joint energy-based model of inputs and labels.

Not here: what is descended (`objectives/`), how chains move (`sampling/`), where they rest
(`replay.py`), what energies mean (`energy.py`).
"""

import random
import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import objectives
from jem_tf._tf import winograd
from jem_tf._tf.randomness import fold_in
from jem_tf._tf.state import State
from jem_tf.checks import check_backbone, check_output_shape, depends_on_training
from jem_tf.data import inputs
from jem_tf.model.fitting import Fitting
from jem_tf.model.health import Watching
from jem_tf.model.scoring import Scoring
from jem_tf.objectives import Batch, Objective
from jem_tf.sampling import SGLD, Uniform
from jem_tf.sampling.base import Sampler
from jem_tf.sampling.replay import ReplayBuffer
from jem_tf.sampling.reuse import cut


@keras.saving.register_keras_serializable("jem_tf")
class JEM(Scoring, Fitting, Watching):
    """Wraps any Keras classifier that ends in logits.

    ```python
    model = jem_tf.JEM(backbone)
    model.compile(optimizer=keras.optimizers.Adam(1e-4), metrics=["accuracy"])
    model.fit(x_train, y_train, epochs=10)    # labels as integers or one-hot; -1: unlabelled

    model.predict(x)            # logits, as the backbone gives
    model.energy(x)             # E(x)
    model.ood_score(x)          # higher = more like the training data
    model.sample(64, label=3)   # from p(x | y = 3)
    ```

    Args:
        backbone: a Keras model from inputs of any rank to logits `[batch, classes]`. Energies
            are always those of the network at inference; batch norm and dropout act on the
            classification term only, which costs a second pass over the data.
        sampler: `SGLD` or `MALA`.
        buffer: the `ReplayBuffer` of persistent chains.
        start: where chains start, `Uniform` or `GaussianMixture`.
        objective: what is learned, and how: "joint" (the paper's), or another of
            `jem_tf.objectives`, by name or as an object.
        input_noise: standard deviation of the noise added to training data, in units of half
            the range of the data.
        augmentation: a Keras layer, such as `keras.layers.RandomFlip`, that changes what is
            classified and not what the density is learned from (SADA-JEM). Augmentation in the
            data set is for both.
        sharpness: how far, as a length in all weights, an update looks for the steepest place near
            the weights and descends from there (sharpness-aware minimisation); 0.05 is usual,
            0 for not at all. It doubles what an update costs, apart from the chains.
        seed: makes training repeatable; None takes one from Python's `random`, as Keras does.
    """

    def __init__(
        self,
        backbone: keras.Model,
        sampler: Sampler | None = None,
        buffer: ReplayBuffer | None = None,
        start: Uniform | None = None,
        objective: str | Objective = "joint",
        input_noise: float = 0.1,
        augmentation: keras.layers.Layer | None = None,
        sharpness: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_backbone(backbone)
        for name, value in {"input_noise": input_noise, "sharpness": sharpness}.items():
            if not value >= 0:
                raise ValueError(f"`{name}` must not be negative. Received: {name}={value!r}")
        for name, part, kind in (
            ("sampler", sampler, Sampler),
            ("buffer", buffer, ReplayBuffer),
            ("start", start, Uniform),
            ("augmentation", augmentation, keras.layers.Layer),
        ):
            if part is not None and not isinstance(part, kind):
                raise TypeError(f"`{name}` must be such an object. Received: {name}={part!r}")
        self.backbone = backbone
        self.sampler = SGLD() if sampler is None else sampler
        self.objective = objectives.get(objective)
        by_class = self.objective.by_class
        self.buffer = ReplayBuffer(per_class=by_class) if buffer is None else buffer
        if by_class and not self.buffer.per_class:
            raise ValueError(
                f"`{type(self.objective).__name__}` needs chains of classes: give "
                "ReplayBuffer(per_class=True), or none. Received: per_class=False"
            )
        self.start = Uniform() if start is None else start
        self.input_noise = float(input_noise)
        self.augmentation = augmentation
        self.sharpness = float(sharpness)
        self.seed = random.randint(0, 2**31 - 1) if seed is None else int(seed)
        self.progress = State(name="progress")
        self.progress.assign(
            step=np.int64(0),
            step_size=np.float32(self.sampler.first),
            skipped=np.int64(0),  # steps whose gradients were not finite, and not applied
        )
        self.forget_vitals()
        logged = ["classification_loss", *self.objective.logged]
        if self.objective.chains:
            logged += ["chain_age", "step_size", *self.sampler.diagnostics]
        self._means = {name: keras.metrics.Mean(name) for name in logged}
        self._functions: dict[str, Any] = {}
        if isinstance(backbone, (keras.Sequential, keras.src.models.Functional)) and backbone.built:
            self.build(backbone.input_shape)

    def build(self, input_shape: Any) -> None:
        logits = self.backbone(keras.KerasTensor(input_shape))  # builds it, whatever its kind
        check_output_shape(getattr(logits, "shape", logits))
        self.num_classes = logits.shape[-1]
        self.example_shape = tuple(input_shape[1:])
        self.one_pass = self.augmentation is None and not depends_on_training(self.backbone)
        if self.sampler.reuse > 1 and cut(self.backbone) is None:
            warnings.warn(
                f"`reuse={self.sampler.reuse}` has no effect: {self.backbone.name!r} cannot be cut "
                "after its first layer. Sequential and functional models can, unless they begin "
                "with another model or a path leads around that layer.",
                stacklevel=2,
            )
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Logits `[batch, classes]`."""
        return self.backbone(inputs, training=training)

    def classified(self, x: tf.Tensor) -> tf.Tensor:
        """The logits that cross-entropy is learned from."""
        if self.augmentation is not None:
            x = self.augmentation(x, training=True)
        return self.logits(x, training=True)

    def train_step(self, data: Any) -> dict[str, Any]:
        """One batch becomes one update; with the objective `joint` this is Algorithm 1."""
        batch = self._unpack(data)
        *seeds, noise_seed = self._seeds(3)
        noise = tf.random.stateless_normal(tf.shape(batch.x), noise_seed)
        x = batch.x + self.input_noise * self.start.scale * noise
        with winograd.faster(self.backbone):
            contrast = self.objective.contrast(self, batch, seeds)
            with tf.GradientTape() as tape:
                terms = self.objective.loss(self, batch, x, contrast)
                scaled = self.optimizer.scale_loss(terms.loss)
        weights = self.trainable_weights
        gradients = tape.gradient(scaled, weights)
        if self.sharpness > 0:
            gradients = self._steepest(gradients, batch, x, contrast)
        gradients, terms.vitals["gradient_norm"] = self._finite(gradients)
        self.optimizer.apply_gradients(zip(gradients, weights))

        self.objective.learned(self, contrast, terms)
        self.progress["step"].assign_add(1)
        return self._logs(self._results(batch, terms.logits))

    def _steepest(
        self, gradients: list[Any], batch: Batch, x: tf.Tensor, contrast: Any
    ) -> list[Any]:
        """The gradients at `sharpness` from the weights, uphill; each replica finds its own."""
        weights = self.trainable_weights
        factor = tf.math.divide_no_nan(self.sharpness, tf.linalg.global_norm(gradients))
        moved = [
            w.value if g is None else w.value + tf.cast(factor, g.dtype) * g
            for w, g in zip(weights, gradients)
        ]
        with (
            keras.StatelessScope(state_mapping=list(zip(weights, moved))),  # and nothing is logged
            winograd.faster(self.backbone),
            tf.GradientTape() as tape,
        ):
            tape.watch(moved)
            scaled = self.optimizer.scale_loss(self.objective.loss(self, batch, x, contrast).loss)
        return tape.gradient(scaled, moved)

    def test_step(self, data: Any) -> dict[str, Any]:
        """The same losses and metrics, of data that is not learned from."""
        batch = self._unpack(data)
        results = self._results(batch, self.objective.test(self, batch))
        known = {k: v for k, v in results.items() if k not in self.sampler.diagnostics}
        return self._logs(known)

    def test_seed(self) -> tf.Tensor:
        """Another one for each batch of an evaluation."""
        seen = tf.cast(self._means["energy_data"].count, tf.int32)
        return fold_in(self._seeds(1, purpose=1)[0], seen)

    def log(self, weight: tf.Tensor | float = 1.0, **values: tf.Tensor) -> None:
        """Add to the means that `fit` shows."""
        for name, value in values.items():
            _update(self._means[name], value, weight)

    def log_loss(self, value: tf.Tensor, rows: tf.Tensor) -> None:
        """Add the whole loss of a batch to its mean."""
        _update(self._loss_tracker, value, rows)

    def _results(self, batch: Batch, logits: tf.Tensor) -> dict[str, Any]:
        if self.objective.chains:
            step_size = self.sampler.step_size_at(tf.constant(0), self.progress["step_size"])
            self.log(chain_age=self.buffer.mean_age(), step_size=step_size)
        known = batch.labelled > 0  # compiled metrics are about labelled rows
        parts = (tf.boolean_mask(v, known) for v in (batch.x, batch.y, logits, batch.weight))
        return self.compute_metrics(*parts)

    def _unpack(self, data: Any) -> Batch:
        x, y, weight = inputs.unpack(data)
        x = tf.cast(x, tf.float32)
        y, targets = inputs.targets_of(y, self.num_classes)
        labelled = tf.cast(tf.reduce_sum(targets, axis=-1) > 0, tf.float32)
        weight = tf.ones_like(labelled) if weight is None else tf.cast(weight, tf.float32)
        return Batch(x, y, targets, labelled, tf.reshape(weight, [-1]))

    def _seeds(self, count: int, purpose: int = 0) -> list[tf.Tensor]:
        """Counter-based: a pure function of the seed, the step, the replica and the purpose."""
        seed = fold_in(tf.constant([self.seed, purpose]), self.progress["step"])
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.unstack(tf.random.split(fold_in(seed, replica), count))

    def get_config(self) -> dict[str, Any]:
        names = ("backbone", "sampler", "buffer", "start", "objective", "augmentation")
        parts = {n: getattr(self, n) for n in names}
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            **{n: keras.saving.serialize_keras_object(part) for n, part in parts.items()},
            "input_noise": self.input_noise,
            "sharpness": self.sharpness,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "JEM":
        parts = {
            name: keras.saving.deserialize_keras_object(value, custom_objects=custom_objects)
            if isinstance(value, dict)
            else value
            for name, value in config.items()
        }
        if "generative_weight" in parts:  # files from before there were objectives
            names = {
                "generative_weight": "weight",
                "lag": "lag",
                "energy_penalty": "energy_penalty",
            }
            options = {new: parts.pop(old) for old, new in names.items() if old in parts}
            parts["objective"] = objectives.Joint(**options)
        return cls(**parts)


def _update(metric: keras.metrics.Mean, value: tf.Tensor, weight: tf.Tensor | float) -> None:
    """Add what is finite: a broken batch should not hide all others of its epoch."""
    fine = tf.math.is_finite(value)
    metric.update_state(tf.where(fine, value, 0.0), weight * tf.cast(fine, tf.float32))
