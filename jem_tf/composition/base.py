"""A density made of trained models, as an expression: `(a | b) & ~c`.

Not here: what the operators compute (`operators.py`), and log Z (`constants.py`).
A model learns p(x) = exp(f(x) / T) / Z, with the temperature T of its sampler. Log densities of
compositions are in nats, f / T; energies are in the unit of the first model, E = -T log p.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from jem_tf import energy as maths
from jem_tf.annealing import LogZ
from jem_tf.checks import check_positive_integer
from jem_tf.composition import constants

if TYPE_CHECKING:
    from jem_tf.composition.operators import Expert

SAMPLE_STEPS = 400


class Composition(ABC):
    """A density made of models; `a & b`, `a | b`, `~a`, `a ** weight` and `share * a` combine them.

    ```python
    odd, small = jem_tf.Expert(parity, label=1), jem_tf.Expert(size, label=0)
    (odd & small).sample(4)                  # both
    (0.3 * odd | 0.7 * small).sample(4)      # one of them, with these shares
    (odd & ~small).sample(4)                 # the first, and not the second
    ```
    """

    normalisable = True  # whether its integral is finite, given that those of the models are
    _log_z: LogZ | None = None

    @abstractmethod
    def combine(self, of: Callable[["Expert"], tf.Tensor]) -> tf.Tensor:
        """The log density in nats, up to its constant, given that `of` each expert; `[n]`."""

    @abstractmethod
    def experts(self) -> Iterator["Expert"]:
        """The experts from left to right."""

    @abstractmethod
    def relabelled(self, labels: Iterator[int | None]) -> "Composition":
        """The same expression with the next class of `labels` for each expert."""

    @abstractmethod
    def prepare(self) -> None:
        """Estimate the constants that `combine` needs, outside of graphs."""

    def __and__(self, other: Any) -> "Composition":
        return _operators().Product([self, other])

    def __or__(self, other: Any) -> "Composition":
        return _operators().joined(self, other)

    def __invert__(self) -> "Composition":
        return _operators().Exclusion(self)

    def __pow__(self, weight: float) -> "Composition":
        return _operators().Product([self], [weight])

    def __mul__(self, share: float) -> "Composition":
        return _operators().Mixture([self], [share])

    __rmul__ = __mul__

    @property
    def first(self) -> "Expert":
        """The expert whose sampler, start and temperature chains use: the first outside of `~`."""
        return next(self.experts())

    def log_density(self, x: Any, labels: Any = None) -> np.ndarray:
        """log p(x) in nats, up to a constant; `[n]`. For `|`, the constant is 0."""
        chosen = self._with(labels)

        def of(expert: "Expert") -> tf.Tensor:
            y = None if expert.label is None else np.full(len(x), expert.label)
            return tf.constant(-expert.model.energy(x, y)) / expert.temperature

        return chosen.combine(of).numpy()

    def energy(self, x: Any, labels: Any = None) -> np.ndarray:
        """E(x) = -T log p(x), in the unit of the first model; `[n]`.

        If all models have the same temperature T, the energy of a product is the weighted sum of
        their energies: of E(x), or of E(x, y) for experts with a class.
        """
        return -self.first.temperature * self.log_density(x, labels)

    def sample(
        self, n: int, labels: Any = None, steps: int = SAMPLE_STEPS, seed: int | None = None
    ) -> np.ndarray:
        """`n` samples. `labels` has a class for each expert, from left to right.

        Chains use the sampler and the start of the first model. Those of `|` are divided among its
        parts by their shares.
        """
        check_positive_integer("n", n)
        check_positive_integer("steps", steps)
        seed = random.randint(0, 2**31 - 1) if seed is None else seed
        chosen = self._with(labels)
        chosen.check_normalisable("sample")
        return chosen.draw(n, steps, seed)

    def log_z(self, chains: int | None = None, steps: int | None = None, seed: int = 0) -> LogZ:
        """log Z in nats, by annealed importance sampling; see `LogZ` for how good the estimate is.

        It is estimated once, and again if `chains` or `steps` are given. `|` uses that of its
        parts.
        """
        self.check_normalisable("log_z")
        if self._log_z is None or chains or steps:
            self._log_z = constants.estimate(self, chains, steps, seed)
        return self._log_z

    def unit_log_density(self, unit: tf.Tensor) -> tf.Tensor:
        """The log density in nats of x / scale, in the graph; one forward pass for each model."""
        x = unit * self.first.model.input_range.scale
        logits: dict[int, tf.Tensor] = {}

        def of(expert: "Expert") -> tf.Tensor:
            key = id(expert.model)
            if key not in logits:
                logits[key] = expert.model.logits(x)
            y = None if expert.label is None else tf.fill([tf.shape(x)[0]], expert.label)
            return maths.log_density(logits[key], y) / expert.temperature

        return self.combine(of)

    def draw(self, n: int, steps: int, seed: int) -> np.ndarray:
        """Run `n` chains."""
        first = self.first
        model, scale = first.model, first.model.input_range.scale
        self.prepare()
        start_seed, chain_seed = tf.unstack(tf.random.split(tf.constant([seed, 0]), 2))
        labels = None if first.label is None else tf.fill([n], first.label)
        temperature = constants.sampler_temperature(model)

        @tf.function
        def run() -> tf.Tensor:
            x = model.start.draw(n, start_seed, labels) / scale
            size = tf.identity(model.progress["step_size"])
            # At temperature T, the sampler samples the density exp(f / T) of f.
            return model.sampler.run(
                lambda unit: temperature * self.unit_log_density(unit),
                x,
                chain_seed,
                steps,
                size,
            )[0]

        return (run() * scale).numpy()

    def check_normalisable(self, what: str) -> None:
        """Raise `ValueError` if the integral of this density is not finite."""
        if not self.normalisable:
            raise ValueError(
                f"`{what}` needs a density, and ~a alone is none: say what is wanted as well, such "
                f"as b & ~a. Received: {self!r}"
            )

    def _with(self, labels: Any) -> "Composition":
        if labels is None:
            return self
        return self.relabelled(iter(_classes(labels, list(self.experts()))))


def _classes(labels: Any, experts: Sequence["Expert"]) -> list[int | None]:
    """A class for each expert; None leaves it as it is."""
    if np.ndim(labels) == 0:
        counts = [expert.model.num_classes for expert in experts]
        if len(set(counts)) > 1:
            raise ValueError(
                f"One class for models with {counts} classes: give one for each, such as "
                f"{tuple(0 for _ in counts)}. Received: labels={labels!r}"
            )
        labels = [labels] * len(experts)
    if len(labels) != len(experts):
        raise ValueError(f"Give {len(experts)} classes or one. Received: labels={labels!r}")
    return list(labels)


def _operators() -> Any:
    from jem_tf.composition import operators  # which imports this module

    return operators
