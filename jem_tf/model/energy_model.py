"""What a classifier read as an energy-based model answers: energies, OOD scores, samples.

Not here: training (`jem.py`). The methods take arrays of any length; inside a `tf.function` they
take and return tensors.
"""

import random
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf._tf import precision
from jem_tf._tf.state import State
from jem_tf.checks import check_positive_integer
from jem_tf.data import inputs
from jem_tf.data.labels import class_indices
from jem_tf.detection.detector import FUSED, Detector
from jem_tf.model import detecting, drawing
from jem_tf.model.backbone import call_allowing_empty
from jem_tf.model.batching import BATCH_SIZE, BatchedCalls
from jem_tf.model.chains import Chains
from jem_tf.model.encoding import Features
from jem_tf.model.latent import find_latent
from jem_tf.model.network_model import NetworkModel
from jem_tf.sampling import ChainStart, InputRange, Sampler

SAMPLE_STEPS = 400


class EnergyModel(NetworkModel):
    """A backbone with a sampler and the range of its inputs; base class of `JEM`.

    E(x) = -logsumexp_y f(x)[y] for the logits f of the backbone at inference.
    """

    def __init__(
        self,
        backbone: keras.Model,
        sampler: Sampler,
        start: ChainStart | None,
        detector: Detector,
        encoder: keras.Model | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(backbone, encoder, **kwargs)
        self.sampler = sampler
        self.input_range = InputRange(name="input_range")
        self.start = start
        if start is not None:
            start.input_range = self.input_range
        self.progress = State(fixed_shapes=True, name="progress")
        self.progress.assign(step=np.int64(0), step_size=np.float32(self.sampler.default_step_size))
        self.detector = detector
        self.chains = Chains(
            self.logits, self.sampler, self.input_range, self.progress, self._bfloat16_logits
        )
        self._batched = BatchedCalls()

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        readable = self.raw_dtype.is_floating  # outliers cannot be made from text
        self.detector.attach(self.backbone, self.encoder if readable else None)

    def detector_inputs(self, x: Any) -> Any:
        """What the detector reads: raw inputs, and vectors if raw inputs are not real numbers."""
        if self._encoding is None or not self.detector.reads_encoder:
            return self.encode(x)
        if isinstance(x, Features):
            raise ValueError(
                "The detector reads layers of the encoder: pass raw inputs of shape "
                f"{self.raw_shape}. Received: vectors of shape {x.shape}"
            )
        return x

    def energy(
        self, x: Any, y: Any = None, batch_size: int = BATCH_SIZE, latent: Any = None
    ) -> Any:
        """E(x), E(x, y) for labels `y`, or E(x, y, z) for labels and values `latent`; `[n]`."""
        labels, name = self._labels(y, x), "energy"
        logits: maths.LogitsFn = self.logits
        if latent is not None:
            variable = find_latent(self.backbone, "`energy` with `latent`")
            labels = variable.pair_indices(labels, latent, x)
            logits, name = variable.pair_logits, "energy_latent"

        def run(x: tf.Tensor, labels: tf.Tensor | None, _: None) -> tf.Tensor:
            values = logits(x)
            return maths.energy(values) if labels is None else maths.joint_energy(values, labels)

        return self._batched(name, run, self._rows(x), batch_size, labels)

    def ood_score(self, x: Any, kind: str | None = None, batch_size: int = BATCH_SIZE) -> Any:
        """How typical each row of `x` is, higher for inputs like the training data; `[n]`.

        `kind` is one of the paper's scores: "log_density", "gradient_norm" (-||d log p(x) / dx||,
        x in units of half the data's range) or "max_probability". Models with a fitted detector
        also have "fused", the default then, and the other statistics of `model.detector.names`.
        Without a detector the default is "log_density".
        """
        kind = kind or (FUSED if self.detector.fitted else "log_density")
        if kind in maths.OOD_SCORES:

            def run(x: tf.Tensor, *_: None) -> tf.Tensor:
                return maths.ood_score(self.logits, x, kind, self.input_range.scale)

            return self._batched(kind, run, self._rows(x), batch_size)
        known = (*maths.OOD_SCORES, FUSED, *self.detector.names)
        if kind not in known:
            raise ValueError(f"`kind` must be one of {known}. Received: kind={kind!r}")
        self._check_detector(f"The score {kind!r}")
        values = self.statistics(x, batch_size)
        if kind == FUSED:
            return _eager_array(self.detector.score(values))
        return values[:, self.detector.names.index(kind)]

    def is_ood(self, x: Any, batch_size: int = BATCH_SIZE) -> Any:
        """Whether each row of `x` is out of distribution; `[n]` bool. See `fit_detector`."""
        return self.p_value(x, batch_size) <= self.detector.false_alarm_rate

    def p_value(self, x: Any, batch_size: int = BATCH_SIZE) -> Any:
        """The conformal p-value of each row of `x`, `[n]`: of inputs like the validation data, a
        share of at most p has a p-value of at most p."""
        self._check_detector("A p-value")

        def run(x: tf.Tensor, *_: None) -> tf.Tensor:
            logits, values = self.detector.read(x, self.input_range.scale)
            return self.detector.p_value(self.detector.score(values), tf.argmax(logits, axis=-1))

        return self._batched("p_value", run, self._detector_rows(x), batch_size)

    def fit_detector(self, x: Any, y: Any = None, reference: Any = None, seed: int = 0) -> Any:
        """Fit the detector, so that `is_ood`, `p_value` and the fused `ood_score` can be used.

        ```python
        model.fit_detector(x_val, y_val, reference=(x_train, y_train))
        model.is_ood(x)
        ```

        Args:
            x: validation rows, which the model was not trained on: an array, or batches.
            y: their labels, for outliers between classes.
            reference: rows that say where the features of the data are, best the training data:
                `(x, y)` or batches. By default a third of the validation rows.
            seed: of the split of the rows, and of the outliers that are made from them.

        Returns:
            The statistics with their weights, the layers and the kinds of outliers, as a dict.
        """
        return detecting.fit_detector(self, x, y, reference, seed)

    def statistics(self, x: Any, batch_size: int = BATCH_SIZE) -> Any:
        """The statistics `model.detector.names` of each row of `x`; `[n, statistics]`."""

        def run(x: tf.Tensor, *_: None) -> tf.Tensor:
            return self.detector.read(x, self.input_range.scale).statistics

        return self._batched("statistics", run, self._detector_rows(x), batch_size)

    def features(self, x: Any, batch_size: int = BATCH_SIZE) -> Any:
        """The outputs of the layers `model.detector.layer_names` as vectors, side by side."""

        def run(x: tf.Tensor, *_: None) -> tf.Tensor:
            return self.detector.features(x)

        return self._batched("features", run, self._detector_rows(x), batch_size)

    def refine(self, x: Any, steps: int = 10, seed: int = 0, batch_size: int = BATCH_SIZE) -> Any:
        """JEM-k: `x` after `steps` sampler steps towards the data, to be classified then."""
        check_positive_integer("steps", steps)

        def run(x: tf.Tensor, _: None, seed: tf.Tensor) -> tf.Tensor:
            return self.run_chains(x, seed, steps=steps)[0]

        return self._batched(f"refine_{steps}", run, self._rows(x), batch_size, seed=seed)

    def sample(
        self,
        n: int,
        label: Any = None,
        steps: int = SAMPLE_STEPS,
        seed: int | None = None,
        batch_size: int = BATCH_SIZE,
        latent: Any = None,
    ) -> np.ndarray:
        """`n` samples of p(x), of p(x | y) for `label`, or of p(x | y, z) for `label` and `latent`.

        Both are one number, or one for each sample. Chains begin at the `start` and take `steps`
        steps; the same `seed` gives the same samples.
        """
        chains = drawing.chains_from_start(self, "sample", n, label, latent, steps)
        return self._draw(n, *chains, seed, batch_size)

    def modes(
        self,
        n: int,
        label: Any = None,
        steps: int = SAMPLE_STEPS,
        seed: int | None = None,
        batch_size: int = BATCH_SIZE,
        latent: Any = None,
    ) -> np.ndarray:
        """`n` inputs of low E(x), E(x, y) or E(x, y, z), found by gradient descent over x.

        As `sample` without noise: `steps` steps of the sampler's size from the `start`. Different
        starts may end in one minimum.
        """
        chains = drawing.chains_from_start(self, "modes", n, label, latent, steps)
        return self._draw(n, *chains, seed, batch_size)

    def latent_probabilities(self, x: Any, y: Any = None, batch_size: int = BATCH_SIZE) -> Any:
        """p(z | x, y) of a backbone with a latent variable: `[n, M]` for labels `y`, or for every
        class, `[n, classes, M]`. See `jem_tf.backbones.LatentDense`."""
        latent = find_latent(self.backbone, "`latent_probabilities`")

        def run(x: tf.Tensor, labels: tf.Tensor | None, _: None) -> tf.Tensor:
            probabilities = tf.nn.softmax(latent.logits(x))
            if labels is None:
                return probabilities
            return tf.gather(probabilities, labels, batch_dims=1)

        return self._batched("latent", run, self._rows(x), batch_size, self._labels(y, x))

    def run_chains(
        self,
        x: tf.Tensor,
        seed: tf.Tensor,
        labels: tf.Tensor | None = None,
        steps: Any = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Run chains of the sampler from `x`, in the graph; they sample p(x | y) given `labels`.

        Without `steps` these are the chains of a training step.
        """
        return self.chains.run(x, seed, labels, steps)

    @property
    def chain_dtype(self) -> str:
        """The type in which the network is computed for the chains of training."""
        return "bfloat16" if self.sampler.uses_bfloat16(self.backbone) else "float32"

    def unit_log_density(self, labels: tf.Tensor | None) -> Any:
        """log p(x), or log p(x | y), as a function of x / scale."""
        return self.chains.log_density(labels)

    def forget_traces(self) -> None:
        """Trace all graphs again: variables that they read were replaced."""
        self._batched.clear()
        if self.train_function is not None:
            self.make_train_function(force=True)
        if self.test_function is not None:
            self.make_test_function(force=True)

    def _bfloat16_logits(self) -> maths.LogitsFn | None:
        if self.chain_dtype == "float32":
            return None
        return partial(call_allowing_empty, precision.in_bfloat16(self.backbone))

    def _check_detector(self, what: str) -> None:
        if not self.detector.fitted:
            raise ValueError(f"{what} needs a fitted detector: call `fit_detector` first.")

    def _draw(self, n: int, name: str, run: Any, labels: Any, seed: Any, batch_size: int) -> Any:
        seed = random.randint(0, 2**31 - 1) if seed is None else seed
        return self._batched(name, run, np.empty(n), batch_size, labels, seed)

    def _labels(self, y: Any, x: Any) -> Any:
        """Labels `y` of the rows `x`, checked; tensors in a graph are not checked."""
        if y is None or not tf.executing_eagerly():
            return y
        return class_indices(y, len(x), self.num_classes, "y")

    def _rows(self, x: Any) -> Any:
        """`x`, encoded and checked; of batches `(x, y)` only x."""
        return inputs.checked_rows(self.encode(x), self.example_shape if self.built else None)

    def _detector_rows(self, x: Any) -> Any:
        """`x` as the detector reads it, checked; of batches `(x, y)` only x."""
        shape = self.raw_shape if self.detector.reads_encoder else self.example_shape
        return inputs.checked_rows(self.detector_inputs(x), shape)


def _eager_array(values: tf.Tensor) -> Any:
    """`values` as an array, unless in a graph."""
    return values.numpy() if tf.executing_eagerly() else values
