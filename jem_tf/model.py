"""JEM: a Keras classifier trained as a joint energy-based model of inputs and labels.

Not here: how chains move (`sampling/`), where they rest (`replay.py`), what energies mean
(`energy.py`). The loss is -log p(y | x) - log p(x), the second term by contrast with samples.
"""

import random
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf import inputs
from jem_tf.checks import check_backbone, check_output_shape, depends_on_training
from jem_tf.fitting import Fitting
from jem_tf.randomness import fold_in
from jem_tf.replay import ReplayBuffer
from jem_tf.sampling import SGLD, Uniform
from jem_tf.sampling.sampler import Sampler
from jem_tf.scoring import Scoring
from jem_tf.state import State, sum_replicas
from jem_tf.watching import Watching


class Terms(NamedTuple):
    """The loss of this replica, and means over all of them."""

    loss: tf.Tensor
    gap: tf.Tensor  # how far samples are above data in log density, each at most `lag`
    vitals: dict[str, tf.Tensor]


class Batch(NamedTuple):
    """A batch as the loss wants it; `y` is kept in the form the user gave, for metrics."""

    x: tf.Tensor
    y: tf.Tensor
    targets: tf.Tensor  # [batch, classes], zero for unlabelled rows
    labelled: tf.Tensor  # [batch], 1.0 or 0.0
    weight: tf.Tensor  # [batch]


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
        input_noise: standard deviation of the noise added to training data, in units of half
            the range of the data.
        generative_weight: how much log p(x) counts beside log p(y | x); the paper's is 1. A
            smaller one costs less accuracy, and learns the density more slowly.
        lag: how far, in nats, the log density of a sample may be behind that of the data; further
            behind it counts less, and nothing from twice as far on. Chains that are still on
            their way from noise, or lost, say nothing about the density, and pushing it down
            where they are would only make their way longer.
        energy_penalty: weight of the mean squared log densities of data and samples in the loss,
            which keeps energies near zero (Du and Mordatch).
        seed: makes training repeatable; None takes one from Python's `random`, as Keras does.
    """

    def __init__(
        self,
        backbone: keras.Model,
        sampler: Sampler | None = None,
        buffer: ReplayBuffer | None = None,
        start: Uniform | None = None,
        input_noise: float = 0.1,
        generative_weight: float = 1.0,
        lag: float = 10.0,
        energy_penalty: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_backbone(backbone)
        numbers = {"input_noise": input_noise, "generative_weight": generative_weight}
        for name, value in {**numbers, "energy_penalty": energy_penalty}.items():
            if not value >= 0:
                raise ValueError(f"`{name}` must not be negative. Received: {name}={value!r}")
        if not lag > 0:
            raise ValueError(f"`lag` must be positive. Received: lag={lag!r}")
        for name, part, kind in (
            ("sampler", sampler, Sampler),
            ("buffer", buffer, ReplayBuffer),
            ("start", start, Uniform),
        ):
            if part is not None and not isinstance(part, kind):
                raise TypeError(f"`{name}` must be such an object. Received: {name}={part!r}")
        self.backbone = backbone
        self.sampler = SGLD() if sampler is None else sampler
        self.buffer = ReplayBuffer() if buffer is None else buffer
        self.start = Uniform() if start is None else start
        self.input_noise = float(input_noise)
        self.generative_weight = float(generative_weight)
        self.lag = float(lag)
        self.energy_penalty = float(energy_penalty)
        self.seed = random.randint(0, 2**31 - 1) if seed is None else int(seed)
        self.progress = State(name="progress")
        self.progress.assign(
            step=np.int64(0),
            step_size=np.float32(self.sampler.first),
            skipped=np.int64(0),  # steps whose gradients were not finite, and not applied
        )
        self.forget_vitals()
        logged = ["classification_loss", "generative_loss", "energy_data", "energy_samples"]
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
        self._one_pass = not depends_on_training(self.backbone)
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Logits `[batch, classes]`."""
        return self.backbone(inputs, training=training)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Algorithm 1 of the paper, for one batch."""
        batch = self._unpack(data)
        draw_seed, chain_seed, noise_seed = self._seeds(3)

        # Start x̂_0 from the buffer B, or anew with probability ρ; η sampler steps to x̂_η.
        draw = self.buffer.draw(tf.shape(batch.x)[0], self.start, draw_seed)
        samples, diagnostics = self.run_chains(draw.x, chain_seed, draw.labels)

        noise = tf.random.stateless_normal(tf.shape(batch.x), noise_seed)
        x = batch.x + self.input_noise * self.start.scale * noise
        with tf.GradientTape() as tape:
            logits, f_data, f_samples = self._forward(x, samples)
            # L = L_clf + w L_gen = -log p(y | x) + w (logsumexp f(x̂_η) - logsumexp f(x))
            terms = self._loss(batch, logits, f_data, f_samples)
            scaled = self.optimizer.scale_loss(terms.loss)
        weights = self.trainable_weights
        gradients, norm = self._finite(tape.gradient(scaled, weights))
        self.optimizer.apply_gradients(zip(gradients, weights))

        # Put x̂_η back into B, at the slots it came from.
        self.buffer.write(draw, samples, self.sampler.steps)
        step_size = self.progress["step_size"]
        rows = tf.cast(tf.shape(samples)[0], tf.float32)
        total, *sums = tf.unstack(  # one exchange for all of them
            sum_replicas(tf.stack([rows, *(v * rows for v in diagnostics.values())]))
        )
        diagnostics = {k: v / total for k, v in zip(diagnostics, sums)}
        if self.sampler.tunes:
            step_size.assign(self.sampler.tune(step_size, terms.gap, diagnostics))
        self.progress["step"].assign_add(1)
        self._log(**diagnostics)
        self._watch(samples, gradient_norm=norm, **terms.vitals, **diagnostics)
        return self._logs(self._results(batch, logits))

    def test_step(self, data: Any) -> dict[str, Any]:
        """The same losses and metrics, with the buffer's chains as the samples."""
        batch = self._unpack(data)
        logits = self(batch.x, training=False)
        f_data = maths.log_density(logits)
        f_samples = f_data[:0]
        if self.buffer.filled:
            seen = tf.cast(self._means["energy_data"].count, tf.int32)  # other chains each batch
            seed = fold_in(self._seeds(1, purpose=1)[0], seen)
            samples = self.buffer.peek(tf.shape(f_data)[0], seed)
            f_samples = maths.log_density(self.backbone(samples, training=False))
        self._loss(batch, logits, f_data, f_samples)
        results = self._results(batch, logits)
        known = {k: v for k, v in results.items() if k not in self.sampler.diagnostics}
        return self._logs(known)

    def _forward(self, x: tf.Tensor, samples: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Logits of the data, and log densities of data and samples by the network at inference."""
        n = tf.shape(x)[0]
        both = self.backbone(tf.concat([x, samples], axis=0), training=False)
        f = maths.log_density(both)
        logits = both[:n] if self._one_pass else self.backbone(x, training=True)
        return logits, f[:n], f[n:]

    def _loss(
        self, batch: Batch, logits: tf.Tensor, f_data: tf.Tensor, f_samples: tf.Tensor
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
        penalty = sum(self.losses) / tf.distribute.get_strategy().num_replicas_in_sync
        loss = loss_clf + self.generative_weight * loss_gen + penalty
        if self.energy_penalty > 0:
            squares = tf.math.divide_no_nan(tf.reduce_sum(batch.weight * f_data**2), weights)
            squares += tf.math.divide_no_nan(tf.reduce_sum(f_samples**2), chains)
            loss += self.energy_penalty * squares
        ahead = tf.clip_by_value(-behind, -self.lag, self.lag)  # lost chains count, but not more
        gaps = [tf.math.divide_no_nan(tf.reduce_sum(v), chains) for v in (ahead, -behind)]
        contrast, total, clf, gap, whole_gap = tf.unstack(
            sum_replicas(tf.stack([loss_gen, loss, loss_clf, *gaps]))
        )
        rows = tf.cast(tf.shape(logits)[0], tf.float32)
        _update(self._loss_tracker, total, rows)
        self._log(rows, generative_loss=contrast)
        self._log(energy_data=-f_data, energy_samples=-f_samples)
        self._log(labelled, classification_loss=cross_entropy)
        vitals = {"gap": whole_gap, "trusted": trusted, "cross_entropy": clf}
        return Terms(loss, gap, vitals)

    def _log(self, weight: tf.Tensor | float = 1.0, **values: tf.Tensor) -> None:
        for name, value in values.items():
            _update(self._means[name], value, weight)

    def _results(self, batch: Batch, logits: tf.Tensor) -> dict[str, Any]:
        step_size = self.sampler.step_size_at(tf.constant(0), self.progress["step_size"])
        self._log(chain_age=self.buffer.mean_age(), step_size=step_size)
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
        parts = {n: getattr(self, n) for n in ("backbone", "sampler", "buffer", "start")}
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            **{n: keras.saving.serialize_keras_object(part) for n, part in parts.items()},
            "input_noise": self.input_noise,
            "generative_weight": self.generative_weight,
            "lag": self.lag,
            "energy_penalty": self.energy_penalty,
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
        return cls(**parts)


def _update(metric: keras.metrics.Mean, value: tf.Tensor, weight: tf.Tensor | float) -> None:
    """Add what is finite: a broken batch should not hide all others of its epoch."""
    fine = tf.math.is_finite(value)
    metric.update_state(tf.where(fine, value, 0.0), weight * tf.cast(fine, tf.float32))
