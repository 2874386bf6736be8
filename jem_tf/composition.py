"""Products of models: what several energy-based models all find likely.

Not here: the models. p(x) ~ prod_i p_i(x)^w_i, so energies add up, each with its weight, and one
chain samples them together. No training is needed for a new combination.
"""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.sampling.base import check_steps


class Composition:
    """Several JEMs as one density; made by `compose`."""

    def __init__(self, models: Sequence[Any], weights: Sequence[float]):
        self.models, self.weights = tuple(models), tuple(float(w) for w in weights)

    def energy(self, x: Any, labels: Any = None) -> np.ndarray:
        """The weighted sum of E(x), or of E(x, y) for a class of each model; `[n]`."""
        chosen = self._labels(labels)
        return sum(
            w * model.energy(x, None if y is None else np.full(len(x), y))
            for w, model, y in zip(self.weights, self.models, chosen)
        )

    def sample(
        self, n: int, labels: Any = None, steps: int = 400, seed: int | None = None
    ) -> np.ndarray:
        """`n` samples that all models find likely, or likely for their class in `labels`.

        Chains are those of the first model's sampler, from its start.
        """
        check_steps(steps)
        chosen = self._labels(labels)
        first = self.models[0]
        number = random.randint(0, 2**31 - 1) if seed is None else seed
        start_seed, chain_seed = tf.unstack(tf.random.split(tf.constant([number, 0]), 2))

        @tf.function
        def run() -> tf.Tensor:
            scale = first.start.scale

            def density(unit: tf.Tensor) -> tf.Tensor:
                total = 0.0
                for w, model, y in zip(self.weights, self.models, chosen):
                    logits = model.backbone(unit * scale, training=False)
                    given = None if y is None else tf.fill([tf.shape(unit)[0]], y)
                    total += w * maths.log_density(logits, given)
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
    """Trained models as one: their energies are added, with `weights` (1 each).

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
        if not model.start.adapted:
            raise ValueError("A model to compose must know its data: `fit` or `adapt` it first.")
    bounds = [[model.start[end].numpy() for end in ("low", "high")] for model in models]
    if any(not np.allclose(bounds[0], other, atol=1e-3) for other in bounds[1:]):
        raise ValueError(
            "Models to compose must take inputs of the same range. Received: "
            + ", ".join(f"[{low.min():.3g}, {high.max():.3g}]" for low, high in bounds)
        )
    return Composition(models, weights)
