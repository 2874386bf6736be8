"""Products of models: inputs that several energy-based models all find likely.

Not here: the models. p(x) ~ prod_i p_i(x)^w_i, so energies add up, each with its weight, and one
chain samples the product. A new combination needs no training.
"""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.checks import check_positive_integer


class Composition:
    """Several JEMs as one density; returned by `compose`."""

    def __init__(self, models: Sequence[Any], weights: Sequence[float]):
        self.models, self.weights = tuple(models), tuple(float(w) for w in weights)

    def energy(self, x: Any, labels: Any = None) -> np.ndarray:
        """The weighted sum of E(x), or of E(x, y) for a class of each model; `[n]`."""
        classes = self._labels(labels)
        return sum(
            w * model.energy(x, None if y is None else np.full(len(x), y))
            for w, model, y in zip(self.weights, self.models, classes)
        )

    def sample(
        self, n: int, labels: Any = None, steps: int = 400, seed: int | None = None
    ) -> np.ndarray:
        """`n` samples that all models find likely, or likely for their class in `labels`.

        Chains use the sampler and the start of the first model.
        """
        check_positive_integer("steps", steps)
        label_of_model = self._labels(labels)
        first = self.models[0]
        seed = random.randint(0, 2**31 - 1) if seed is None else seed
        start_seed, chain_seed = tf.unstack(tf.random.split(tf.constant([seed, 0]), 2))

        @tf.function
        def run() -> tf.Tensor:
            scale = first.input_range.scale

            def density(unit: tf.Tensor) -> tf.Tensor:
                total = 0.0
                for w, model, y in zip(self.weights, self.models, label_of_model):
                    logits = model.backbone(unit * scale, training=False)
                    classes = None if y is None else tf.fill([tf.shape(unit)[0]], y)
                    total += w * maths.log_density(logits, classes)
                return total

            x = first.start.draw(n, start_seed) / scale
            size = tf.identity(first.progress["step_size"])
            return first.sampler.run(density, x, chain_seed, steps, size)[0] * scale

        return run().numpy()

    def _labels(self, labels: Any) -> list[int | None]:
        """A class for each model, or none."""
        if labels is None:
            return [None] * len(self.models)
        counts = [model.num_classes for model in self.models]
        if np.ndim(labels) == 0:
            if len(set(counts)) > 1:
                raise ValueError(
                    f"One class for models with {counts} classes: give one for each, such as "
                    f"{tuple(0 for _ in counts)}. Received: labels={labels!r}"
                )
            labels = [labels] * len(counts)
        if len(labels) != len(counts):
            raise ValueError(f"Give {len(counts)} classes or one. Received: labels={labels!r}")
        for y, count in zip(labels, counts):
            if y is not None and not 0 <= y < count:
                raise ValueError(f"Classes are between 0 and {count - 1}. Received: {labels!r}")
        return [None if y is None else int(y) for y in labels]


def compose(models: Sequence[Any], weights: Sequence[float] | None = None) -> Composition:
    """Combine trained models into one: their energies are added, with `weights` (default 1).

    ```python
    both = jem_tf.compose([parity, size], weights=[1.0, 0.5])
    both.sample(16, labels=(1, 0))        # odd, and small
    ```
    """
    models = list(models)
    weights = [1.0] * len(models) if weights is None else list(weights)
    if not models or len(weights) != len(models):
        raise ValueError(
            f"Give one weight for each model. Received: {len(models)} models, weights={weights!r}"
        )
    shapes = [model.example_shape for model in models]
    if len(set(shapes)) > 1:
        raise ValueError(f"Models to compose must take the same inputs. Received: shapes {shapes}")
    for model in models:
        if not model.input_range.adapted:
            raise ValueError(
                "A model to compose must know the range of its data: call `fit` or `adapt` first."
            )
    bounds = [model.input_range.numpy() for model in models]
    if any(not np.allclose(bounds[0], other, atol=1e-3) for other in bounds[1:]):
        raise ValueError(
            "Models to compose must take inputs of the same range. Received: "
            + ", ".join(f"[{low.min():.3g}, {high.max():.3g}]" for low, high in bounds)
        )
    return Composition(models, weights)
