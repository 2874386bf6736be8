"""Where chains start: fitted to data by `adapt`, drawn in the graph.

Not here: replay (`replay.py`), which decides when a chain starts again.
"""

from abc import abstractmethod
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.randomness import fold_in, normal, uniform
from jem_tf._tf.state import State
from jem_tf.checks import check_not_negative, check_positive_integer, check_probability
from jem_tf.sampling.input_range import InputRange

MAX_FACTOR_VALUES = 2**22  # of the covariances of a default start, 16 MB


class ChainStart(State):
    """Base class of chain starts: a distribution that chains begin at, which implements `draw`.

    A start knows the range of the inputs. A model gives its start the model's own `input_range`;
    a start used alone learns the range in `adapt`.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.input_range = InputRange()

    def adapt(self, x: np.ndarray, y: np.ndarray | None = None, classes: int = 0) -> None:
        """Learn from rows `x` with labels `y`, integers below `classes`."""
        if not self.input_range.adapted:
            self.input_range.adapt(x)

    @abstractmethod
    def draw(self, n: tf.Tensor | int, seed: Any, labels: tf.Tensor | None = None) -> tf.Tensor:
        """Draw `n` starting points, of the classes in `labels` if the start has classes."""

    def convert_saved(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if "low" in arrays:  # files of version 0.1, where the range was part of the start
            self.input_range.assign(low=arrays.pop("low"), high=arrays.pop("high"))
        return arrays


def default_start(shape: tuple[int, ...], classes: int) -> ChainStart:
    """Where chains of inputs of `shape` start by default: images uniformly, as in the paper, and
    vectors near the data of each class, from where chains reach all classes in their shares."""
    if len(shape) != 1:
        return Uniform()
    return GaussianMixture(max(1, min(64, MAX_FACTOR_VALUES // (classes * shape[0]))))


def _uniform_in(bounds: InputRange, n: tf.Tensor | int, seed: Any) -> tf.Tensor:
    return bounds.low + (bounds.high - bounds.low) * uniform([n, *bounds.low.shape], seed)


@keras.saving.register_keras_serializable("jem_tf")
class Uniform(ChainStart):
    """Uniform over the range of the data, as in the paper: U(-1, 1) for images scaled to it.

    ```python
    start = Uniform()
    start.adapt(x)                       # the range of each feature (the last axis)
    start.draw(64, seed=(1, 2))          # [64, ...] like x
    ```
    """

    def draw(self, n: tf.Tensor | int, seed: Any, labels: tf.Tensor | None = None) -> tf.Tensor:
        return _uniform_in(self.input_range, n, seed)


@keras.saving.register_keras_serializable("jem_tf")
class GaussianMixture(ChainStart):
    """A Gaussian fitted to each class, the informative start of JEM++.

    ```python
    JEM(backbone, start=GaussianMixture())
    ```

    The covariance of a class is exact in its `rank` largest directions and diagonal in the rest,
    so large images stay cheap; inputs with at most `rank` values get the full covariance. Each
    value has at least the standard deviation `floor`, in half ranges of the data. With a `floor`
    above zero the density is positive everywhere, and `log_density` returns it.

    A part of the points, `uniform_share`, is uniform over the range of the data instead. Images
    need some: a density that is learned from starts near the data alone may be high for noise.
    Chains of these points do not end in all classes alike.
    """

    def __init__(
        self, rank: int = 64, floor: float = 0.0, uniform_share: float = 0.0, **kwargs: Any
    ):
        super().__init__(**kwargs)
        check_positive_integer("rank", rank)
        check_not_negative(floor=floor)
        check_probability("uniform_share", uniform_share)
        self.rank, self.floor, self.uniform_share = int(rank), float(floor), float(uniform_share)

    @property
    def adapted(self) -> bool:
        """Whether the Gaussians have been fitted."""
        return "mean" in self

    def adapt(self, x: np.ndarray, y: np.ndarray | None = None, classes: int = 0) -> None:
        super().adapt(x, y, classes)
        rows = np.zeros(len(x), int) if y is None or not (y >= 0).any() else y
        groups = [x[rows == k].reshape(-1, x[0].size) for k in range(max(classes, 1))]
        everything = x.reshape(len(x), -1)
        fits = [self._fit(g if len(g) > 1 else everything) for g in groups]
        mean, factor, residual = (np.stack(part).astype(np.float32) for part in zip(*fits))
        smallest = self.floor * self.input_range.scale.numpy().reshape(1, -1)
        residual = np.sqrt(residual**2 + smallest**2).astype(np.float32)
        share = np.asarray([len(g) for g in groups]) / max(1, (rows >= 0).sum())
        self.assign(
            mean=mean.reshape(-1, *x.shape[1:]),
            factor=factor,
            residual=residual,
            share=share.astype(np.float32),
        )

    def _fit(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean = rows.mean(0, dtype=np.float64)
        centred = rows - mean
        _, size, direction = np.linalg.svd(centred / np.sqrt(len(rows)), full_matrices=False)
        factor = np.zeros((min(self.rank, rows.shape[1]), rows.shape[1]))
        kept = min(len(factor), len(size))
        factor[:kept] = size[:kept, None] * direction[:kept]
        left = (centred**2).mean(0) - (factor**2).sum(0)
        return mean, factor, np.sqrt(np.maximum(left, 0.0))

    @property
    def _flat_mean(self) -> tf.Tensor:
        return tf.reshape(self["mean"], self["residual"].shape)

    def draw(self, n: tf.Tensor | int, seed: Any, labels: tf.Tensor | None = None) -> tf.Tensor:
        seeds = [fold_in(tf.convert_to_tensor(seed), purpose) for purpose in range(3)]
        if labels is None:
            shares = tf.math.log(self["share"])[tf.newaxis]
            labels = tf.random.stateless_categorical(shares, n, seeds[0])[0]
        mean, residual = (tf.gather(v, labels) for v in (self._flat_mean, self["residual"]))
        classes, rank, size = self["factor"].shape
        along = normal([n, rank], seeds[1])
        rest = normal(tf.shape(mean), seeds[2])
        # One product for all classes: the factors of all rows would not fit into a cache.
        chosen = tf.one_hot(labels, classes)[:, :, tf.newaxis] * along[:, tf.newaxis]
        factor = tf.reshape(self["factor"], [classes * rank, size])
        x = mean + tf.reshape(chosen, [n, classes * rank]) @ factor + residual * rest
        x = tf.reshape(x, [n, *self["mean"].shape[1:]])
        if self.uniform_share == 0:
            return x
        seeds = [fold_in(tf.convert_to_tensor(seed), purpose) for purpose in (3, 4)]
        chosen = uniform([n, *[1] * (len(x.shape) - 1)], seeds[0]) < self.uniform_share
        return tf.where(chosen, _uniform_in(self.input_range, n, seeds[1]), x)

    def log_density(self, x: tf.Tensor) -> tf.Tensor:
        """log q(x), normalised; `[n]`."""
        if self.floor == 0 or self.uniform_share > 0:
            raise ValueError(
                "A GaussianMixture has a density with `floor` above 0 and `uniform_share` 0. "
                f"Received: floor={self.floor}, uniform_share={self.uniform_share}"
            )
        from tensorflow_probability import distributions

        components = distributions.MultivariateNormalDiagPlusLowRankCovariance(
            self._flat_mean,
            self["residual"] ** 2,
            tf.linalg.matrix_transpose(self["factor"]),
        )
        rows = tf.reshape(x, [tf.shape(x)[0], 1, self["residual"].shape[1]])
        return tf.reduce_logsumexp(tf.math.log(self["share"]) + components.log_prob(rows), axis=1)

    def convert_saved(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if "low" in arrays and "mean" in arrays:  # version 0.1 kept the means flat
            arrays["mean"] = arrays["mean"].reshape(-1, *arrays["low"].shape)
        return super().convert_saved(arrays)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **{n: getattr(self, n) for n in ("rank", "floor", "uniform_share")},
        }
