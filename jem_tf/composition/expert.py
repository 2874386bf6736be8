"""A trained model as a part of a composition. Not here: the operators (`operators.py`)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.annealing import LogZ
from jem_tf.composition import constants
from jem_tf.composition.base import Composition


class Expert(Composition):
    """A trained model as a part of a composition: its p(x), or p(x | y) for the class `label`.

    ```python
    odd = jem_tf.Expert(parity, label=1)
    (odd & jem_tf.Expert(size)).sample(4)
    ```
    """

    def __init__(self, model: Any, label: int | None = None):
        if not model.input_range.adapted:
            raise ValueError(
                "A model to compose must know the range of its data: call `fit` or `adapt` first."
            )
        if label is not None and not 0 <= label < model.num_classes:
            raise ValueError(
                f"Classes are between 0 and {model.num_classes - 1}. Received: {label!r}"
            )
        self.model, self.label = model, None if label is None else int(label)
        self.temperature = constants.temperature(model)

    def combine(self, of: Callable[["Expert"], tf.Tensor]) -> tf.Tensor:
        return of(self)

    def experts(self) -> Iterator["Expert"]:
        yield self

    def relabelled(self, labels: Iterator[int | None]) -> Composition:
        label = next(labels)
        return self if label is None else Expert(self.model, label)

    def prepare(self) -> None:
        """An expert by itself needs no constant."""

    def log_z(self, chains: int | None = None, steps: int | None = None, seed: int = 0) -> LogZ:
        """As estimated, or as objectives such as `nce` have learned it with the model."""
        if self.label is None and self.model.objective.normalised and not (chains or steps):
            return LogZ(float(self.model.objective.log_z), 0.0, float("inf"), 1.0)
        return super().log_z(chains, steps, seed)

    def __repr__(self) -> str:
        label = "" if self.label is None else f", label={self.label}"
        return f"Expert({self.model.name}{label})"


def as_composition(part: Any) -> Composition:
    """`part`, or an expert if it is a model."""
    return part if isinstance(part, Composition) else Expert(part)


def check_same_shapes(parts: Sequence[Any]) -> None:
    """Raise an error unless all parts are models or compositions, for inputs of one shape."""
    models = [part.first.model if isinstance(part, Composition) else part for part in parts]
    for model in models:
        if not hasattr(model, "example_shape"):
            raise TypeError(
                "Parts of a composition are trained models and compositions of them. Received: "
                f"{type(model).__name__}"
            )
    if any(model.encoder is not models[0].encoder for model in models):
        raise ValueError("Models to compose must share their encoder, or have none.")
    shapes = [model.example_shape for model in models]
    if len(set(shapes)) > 1:
        raise ValueError(f"Models to compose must take the same inputs. Received: shapes {shapes}")


def check_same_ranges(experts: Sequence[Expert]) -> None:
    """Raise `ValueError` unless all models take inputs of one range."""
    bounds = [expert.model.input_range.numpy() for expert in experts]
    if any(not np.allclose(bounds[0], other, atol=1e-3) for other in bounds[1:]):
        raise ValueError(
            "Models to compose must take inputs of the same range. Received: "
            + ", ".join(f"[{low.min():.3g}, {high.max():.3g}]" for low, high in bounds)
        )
