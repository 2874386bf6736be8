"""Models of images with an exact likelihood: what Glow and PixelCNN++ have in common.

Not here: the networks (`glow.py`, `pixelcnn.py`), which are those of TensorFlow Probability, and
training (`fitting.py`). With classes, log p(x) = log sum_y p(y) p(x | y), p(y | x) by Bayes' rule.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf import energy
from jem_tf._tf.state import State
from jem_tf.checks import check_known, check_not_negative, check_positive, check_positive_integer
from jem_tf.likelihood import fitting
from jem_tf.likelihood.levels import Levels

SCORES = ("log_density", "gradient_norm")
BATCH_SIZE = 256


class LikelihoodModel(State):
    """Base class of `Glow` and `PixelCNN`; all variables are arrays of the `State`.

    Args:
        classes: number of classes; 0 models p(x) without labels.
        levels: number of values that a pixel can have, evenly spaced.
        pixel_range: the lowest and the highest of them.
        epochs: passes over the data of `fit`.
        batch_size: rows in a training step.
        learning_rate: of Adam; it falls to zero by a cosine.
        seed: of the first weights, the order of the rows, and the noise.
        network: settings of the network, of the subclass.
    """

    unit = 1.0  # the change of a value of `_values` by a change of x

    def __init__(
        self,
        classes: int = 0,
        levels: int = 256,
        pixel_range: tuple[float, float] = (-1.0, 1.0),
        epochs: int = 10,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        seed: int = 0,
        network: dict[str, int] | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.network = network or {}
        for name, value in {**self.network, "epochs": epochs, "batch_size": batch_size}.items():
            check_positive_integer(name, value)
        check_positive("learning_rate", learning_rate)
        check_not_negative(classes=classes)
        self.levels = Levels(int(levels), float(pixel_range[0]), float(pixel_range[1]))
        self.classes, self.seed = int(classes), int(seed)
        self.epochs, self.batch_size, self.learning_rate = epochs, batch_size, learning_rate
        self._learned: list[tf.Variable] = []
        self._compiled: dict[Any, Callable] = {}

    @property
    def adapted(self) -> bool:
        """Whether the model has been fitted or loaded."""
        return bool(self._learned)

    def create(self, shape: tuple[int, ...]) -> None:
        """Create the network for images of `shape`, `[height, width, channels]`."""
        if len(shape) != 3:
            raise ValueError(f"`shape` must be (height, width, channels). Received: {shape}")
        self._shape = tuple(int(n) for n in shape)
        variables, self._learned = self._create()
        self._arrays = {f"{i:04d}": variable for i, variable in enumerate(variables)}
        self.assign(
            shape=np.asarray(shape, np.int32),
            log_prior=np.full(max(1, self.classes), -np.log(max(1, self.classes)), np.float32),
        )

    def _create(self) -> tuple[list[tf.Variable], list[tf.Variable]]:
        """Create the network; return all of its variables, and those that are trained."""
        raise NotImplementedError

    def _log_conditional(self, values: tf.Tensor, y: tf.Tensor | None = None) -> tf.Tensor:
        """log p(x | y) in nats: `[n]` for labels `y`, `[n, classes]` of all classes without."""
        raise NotImplementedError

    def _values(self, x: tf.Tensor) -> tf.Tensor:
        """x as the network takes it."""
        return x

    def score_inputs(self, x: Any) -> tf.Tensor:
        """x as `ood_score` reads it: at levels, as the training data was."""
        return self.levels.quantise(x)

    def log_joint(self, x: Any) -> Any:
        """log p(x, y) of each class, `[n, classes]`: logits, as a JEM has; `[n, 1]` without."""
        return self._batched("log_joint", lambda x: self._log_joint(self._values(x)), x)

    def log_density(self, x: Any) -> Any:
        """log p(x) in nats; `[n]`."""

        def run(x: tf.Tensor) -> tf.Tensor:
            return energy.log_density(self._log_joint(self._values(x)))

        return self._batched("log_density", run, x)

    def gradient(self, x: Any) -> Any:
        """d log p(x) / dx, of the shape of x."""

        def run(x: tf.Tensor) -> tf.Tensor:
            values = self._values(x)
            return self.unit * energy.gradient(
                lambda v: energy.log_density(self._log_joint(v)), values
            )

        return self._batched("gradient", run, x)

    def gradient_norm(self, x: Any) -> Any:
        """||d log p(x) / dx||, x in units of half the pixel range, as that of a JEM; `[n]`."""
        half = (self.levels.high - self.levels.low) / 2
        gradient = tf.convert_to_tensor(self.gradient(x))
        norm = half * tf.norm(tf.reshape(gradient, [tf.shape(gradient)[0], -1]), axis=1)
        return norm.numpy() if tf.executing_eagerly() else norm

    def ood_score(self, x: Any, kind: str = "log_density") -> np.ndarray:
        """How typical each row of `x` is, `[n]`: log p(x), or -||d log p(x) / dx||."""
        check_known("kind of score", kind, SCORES)
        x = self.score_inputs(x)
        return self.log_density(x) if kind == SCORES[0] else -self.gradient_norm(x)

    def predict(self, x: Any) -> np.ndarray:
        """p(y | x) by Bayes' rule, `[n, classes]`."""
        if not self.classes:
            raise ValueError("A model without classes cannot classify: create it with `classes`.")
        return tf.nn.softmax(self.log_joint(self.score_inputs(x))).numpy()

    def bits_per_dim(self, x: Any) -> np.ndarray:
        """-log2 P(x) per value of an image at levels; `[n]`. For Glow an upper bound."""
        return -self._log_mass(self.levels.quantise(x)) / (np.prod(self._shape) * np.log(2.0))

    def _log_mass(self, x: tf.Tensor) -> Any:
        return self.log_density(x)

    def fit(
        self,
        x: np.ndarray,
        y: np.ndarray | None = None,
        validation: np.ndarray | None = None,
        verbose: bool = True,
        checkpoint: Path | None = None,
        on_epoch: Callable[[dict[str, float]], None] | None = None,
    ) -> list[dict[str, float]]:
        """Maximise the likelihood of rows `x` with labels `y`; return a line for each epoch.

        `validation` rows are measured after each epoch. With `checkpoint`, a directory, an
        interrupted fit continues. `on_epoch` gets each line.
        """
        x = np.asarray(x, np.float32)
        if not self.adapted:
            self.create(x.shape[1:])
        return fitting.fit(self, x, y, validation, verbose, checkpoint, on_epoch)

    def save(self, path: str | Path) -> None:
        """Save to one `.npz` file, without pickled objects; `load` reads it."""
        config = np.array(json.dumps([type(self).__name__, self.get_config()]))
        temporary = Path(path).with_name(f".{Path(path).name}.part.npz")
        np.savez(temporary, allow_pickle=False, config=config, **self.arrays())
        temporary.replace(path)

    def load_own_variables(self, store: Any) -> None:
        if not self.adapted and "shape" in store.keys():  # noqa: SIM118 (Keras' store)
            self.create(tuple(int(n) for n in np.asarray(store["shape"])))
        super().load_own_variables(store)

    def get_config(self) -> dict[str, Any]:
        names = ("classes", "epochs", "batch_size", "learning_rate", "seed")
        config = {**super().get_config(), **self.network, **{n: getattr(self, n) for n in names}}
        pixel_range = (self.levels.low, self.levels.high)
        return {**config, "levels": self.levels.count, "pixel_range": pixel_range}

    def _log_joint(self, values: tf.Tensor) -> tf.Tensor:
        return self._log_conditional(values) + self["log_prior"]

    def _batched(self, name: str, run: Callable, x: Any) -> Any:
        """`run` for batches of an array; for a tensor in a graph, at once."""
        if not self.adapted:
            raise ValueError(f"{type(self).__name__} has no network yet: call `fit` or `load`.")
        if not tf.executing_eagerly():
            return run(x)
        if name not in self._compiled:
            signature = [tf.TensorSpec([None, *self._shape])]
            self._compiled[name] = tf.function(run, signature, autograph=False)
        function = self._compiled[name]
        x = tf.convert_to_tensor(x, tf.float32)
        parts = [function(x[i : i + BATCH_SIZE]) for i in range(0, max(1, len(x)), BATCH_SIZE)]
        return np.concatenate([part.numpy() for part in parts])
