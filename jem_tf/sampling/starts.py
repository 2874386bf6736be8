"""Where chains start: fitted to data by `adapt`, drawn in the graph.

Not here: replay (`replay.py`), which decides when a chain starts anew.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jem_tf._tf.randomness import fold_in, normal, uniform
from jem_tf._tf.state import State


@keras.saving.register_keras_serializable("jem_tf")
class Uniform(State):
    """Uniform over the range of the data, as in the paper: U(-1, 1) for images scaled to it.

    ```python
    start = Uniform()
    start.adapt(x)                       # the range of each feature (the last axis)
    start.draw(64, seed=(1, 2))          # [64, ...] like x
    ```
    """

    def adapt(
        self,
        x: np.ndarray,
        y: np.ndarray | None = None,
        classes: int = 0,
        bounds: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Learn from rows `x` with labels `y`; `bounds` if the range of more rows is known."""
        axes = tuple(range(x.ndim - 1))
        low, high = (x.min(axes), x.max(axes)) if bounds is None else bounds
        shaped = [np.broadcast_to(v, x.shape[1:]).astype(np.float32) for v in (low, high)]
        self.assign(low=shaped[0], high=shaped[1])

    @property
    def adapted(self) -> bool:
        return "low" in self

    @property
    def scale(self) -> tf.Tensor:
        """Half the range of each feature, the unit in which chains move; 1 where that is 0 or
        not known yet."""
        if not self.adapted:
            return tf.constant(1.0)
        half = (self["high"] - self["low"]) / 2.0
        return tf.where(half > 0, half, tf.ones_like(half))

    def draw(self, n: tf.Tensor | int, seed: Any, labels: tf.Tensor | None = None) -> tf.Tensor:
        """`n` starting points, of the classes in `labels` where the start knows classes."""
        low, high = self["low"], self["high"]
        return low + (high - low) * uniform([n, *low.shape], seed)


@keras.saving.register_keras_serializable("jem_tf")
class GaussianMixture(Uniform):
    """A Gaussian fitted to each class, the informative start of JEM++.

    ```python
    JEM(backbone, start=GaussianMixture())
    ```

    The covariance of a class is exact in its `rank` largest directions and diagonal in the rest,
    so large images stay cheap; inputs with at most `rank` values get the full covariance. Each
    value has at least the standard deviation `floor`, in half ranges of the data: with one above
    zero there is a density everywhere, `log_density`.
    """

    def __init__(self, rank: int = 64, floor: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        if not isinstance(rank, int) or rank < 1:
            raise ValueError(f"`rank` must be a positive integer. Received: rank={rank!r}")
        if not floor >= 0:
            raise ValueError(f"`floor` must not be negative. Received: floor={floor!r}")
        self.rank, self.floor = rank, float(floor)

    def adapt(
        self,
        x: np.ndarray,
        y: np.ndarray | None = None,
        classes: int = 0,
        bounds: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        super().adapt(x, y, classes, bounds)
        rows = np.zeros(len(x), int) if y is None or not (y >= 0).any() else y
        groups = [x[rows == k].reshape(-1, x[0].size) for k in range(max(classes, 1))]
        everything = x.reshape(len(x), -1)
        fits = [self._fit(g if len(g) > 1 else everything) for g in groups]
        mean, factor, residual = (np.stack(part).astype(np.float32) for part in zip(*fits))
        least = self.floor * self.scale.numpy().reshape(1, -1)
        residual = np.sqrt(residual**2 + least**2).astype(np.float32)
        share = np.asarray([len(g) for g in groups]) / max(1, (rows >= 0).sum())
        share = share.astype(np.float32)
        self.assign(mean=mean, factor=factor, residual=residual, share=share)

    def _fit(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean = rows.mean(0, dtype=np.float64)
        centred = rows - mean
        _, size, direction = np.linalg.svd(centred / np.sqrt(len(rows)), full_matrices=False)
        factor = np.zeros((min(self.rank, rows.shape[1]), rows.shape[1]))
        kept = min(len(factor), len(size))
        factor[:kept] = size[:kept, None] * direction[:kept]
        left = (centred**2).mean(0) - (factor**2).sum(0)
        return mean, factor, np.sqrt(np.maximum(left, 0.0))

    def draw(self, n: tf.Tensor | int, seed: Any, labels: tf.Tensor | None = None) -> tf.Tensor:
        seeds = [fold_in(tf.convert_to_tensor(seed), purpose) for purpose in range(3)]
        if labels is None:
            shares = tf.math.log(self["share"])[tf.newaxis]
            labels = tf.random.stateless_categorical(shares, n, seeds[0])[0]
        mean, factor, residual = (
            tf.gather(self[v], labels) for v in ("mean", "factor", "residual")
        )
        along = normal([n, tf.shape(factor)[1]], seeds[1])
        rest = normal(tf.shape(mean), seeds[2])
        x = mean + tf.einsum("nr,nrd->nd", along, factor) + residual * rest
        return tf.reshape(x, [n, *self["low"].shape])

    def log_density(self, x: tf.Tensor) -> tf.Tensor:
        """log q(x), normalised; `[n]`."""
        if self.floor == 0:
            raise ValueError("A GaussianMixture has a density with `floor` above 0. Received: 0")
        from tensorflow_probability import distributions

        parts = distributions.MultivariateNormalDiagPlusLowRankCovariance(
            self["mean"],
            self["residual"] ** 2,
            tf.linalg.matrix_transpose(self["factor"]),
        )
        rows = tf.reshape(x, [tf.shape(x)[0], 1, self["mean"].shape[1]])
        return tf.reduce_logsumexp(tf.math.log(self["share"]) + parts.log_prob(rows), axis=1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rank": self.rank, "floor": self.floor}
