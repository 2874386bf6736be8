"""What the operators of compositions compute. Not here: chains (`base.py`), log Z (`constants.py`).

a & b    log p = w_a log a + w_b log b                        products of experts
a | b    log p = log(s_a a / Z_a + s_b b / Z_b)               mixtures, shares s
~a       log p = log(1 - p(y | x)) / T                        for an expert with a class
         log p = -log(1 + a / level)                          else; both are at most 0
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf.annealing import LogZ
from jem_tf.checks import check_positive
from jem_tf.composition import constants
from jem_tf.composition.base import Composition
from jem_tf.composition.expert import (
    Expert,
    as_composition,
    check_same_ranges,
    check_same_shapes,
)

Of = Callable[[Expert], tf.Tensor]


class _Combined(Composition):
    """Several parts with a number for each."""

    def __init__(self, parts: Sequence[Any], numbers: Sequence[float] | None):
        check_same_shapes(parts)
        self.parts: list[Composition] = [as_composition(part) for part in parts]
        self.numbers = [1.0] * len(self.parts) if numbers is None else [*map(float, numbers)]
        if not self.parts or len(self.numbers) != len(self.parts):
            raise ValueError(
                f"Give one weight for each model. Received: {len(self.parts)} models, "
                f"weights={self.numbers!r}"
            )
        check_same_ranges(list(self.experts()))

    @property
    def first(self) -> Expert:
        return next((part.first for part in self.parts if part.normalisable), super().first)

    def experts(self) -> Iterator[Expert]:
        for part in self.parts:
            yield from part.experts()

    def relabelled(self, labels: Iterator[int | None]) -> Composition:
        return type(self)([part.relabelled(labels) for part in self.parts], self.numbers)

    def prepare(self) -> None:
        for part in self.parts:
            part.prepare()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.parts}, {self.numbers})"


class Product(_Combined):
    """`a & b`: inputs that all parts find likely; `a ** 0.5` flattens, `a ** 2` sharpens a part."""

    def __init__(self, parts: Sequence[Any], weights: Sequence[float] | None = None):
        super().__init__(parts, weights)
        pairs = list(zip(self.parts, self.numbers))
        flat = [  # a product in a product is one product
            (part, weight * number)
            for outer, weight in pairs
            for part, number in (
                zip(outer.parts, outer.numbers) if isinstance(outer, Product) else [(outer, 1.0)]
            )
        ]
        self.parts, self.numbers = [part for part, _ in flat], [number for _, number in flat]
        for number in self.numbers:
            check_positive("weight", number, "positive; ~a is for what is not wanted")
        self.normalisable = any(part.normalisable for part in self.parts)

    def combine(self, of: Of) -> tf.Tensor:
        return sum(w * part.combine(of) for part, w in zip(self.parts, self.numbers))

    def draw(self, n: int, steps: int, seed: int) -> np.ndarray:
        """(a | b) & c is (a & c) | (b & c), whose parts chains can sample one by one."""
        for index, (part, weight) in enumerate(zip(self.parts, self.numbers)):
            if isinstance(part, Mixture) and weight == 1.0:
                return self._distributed(index, part).draw(n, steps, seed)
        return super().draw(n, steps, seed)

    def _distributed(self, index: int, mixture: "Mixture") -> "Mixture":
        """Part i of the mixture has the share s_i Z(a_i & c) / Z(a_i)."""
        alternatives = []
        for part in mixture.parts:
            parts = [part if i == index else other for i, other in enumerate(self.parts)]
            alternatives.append(Product(parts, self.numbers))
        if len(alternatives) == 1:
            return Mixture(alternatives)
        logs = [
            math.log(share) + product.log_z().value - part.log_z().value
            for share, product, part in zip(mixture.numbers, alternatives, mixture.parts)
        ]
        return Mixture(alternatives, [math.exp(value - max(logs)) + 1e-300 for value in logs])


class Mixture(_Combined):
    """`0.3 * a | 0.7 * b`: inputs that one of the parts finds likely, with these shares."""

    def __init__(self, parts: Sequence[Any], shares: Sequence[float] | None = None):
        super().__init__(parts, shares)
        for part, share in zip(self.parts, self.numbers):
            check_positive("share", share)
            part.check_normalisable("|")

    @property
    def shares(self) -> np.ndarray:
        """The shares of the parts, which sum to 1."""
        return np.asarray(self.numbers) / sum(self.numbers)

    def combine(self, of: Of) -> tf.Tensor:
        logs = [
            math.log(share) - part.log_z().value + part.combine(of)
            for share, part in zip(self.shares, self.parts)
        ]
        return tf.reduce_logsumexp(tf.stack(logs), axis=0)

    def log_z(self, chains: int | None = None, steps: int | None = None, seed: int = 0) -> LogZ:
        """0, with the error of the worst part."""
        estimates = [part.log_z(chains, steps, seed) for part in self.parts]
        error = max(estimate.error for estimate in estimates)
        effective = min(estimate.effective for estimate in estimates)
        return LogZ(0.0, error, effective, min(estimate.acceptance for estimate in estimates))

    def draw(self, n: int, steps: int, seed: int) -> np.ndarray:
        """Divide the chains among the parts, so that none has to cross from part to part."""
        rng = np.random.default_rng(seed)
        counts = rng.multinomial(n, self.shares)
        seeds = rng.integers(2**31 - 1, size=len(counts))
        drawn = [
            part.draw(int(count), steps, int(part_seed))
            for part, count, part_seed in zip(self.parts, counts, seeds)
            if count
        ]
        return rng.permutation(np.concatenate(drawn))

    def prepare(self) -> None:
        super().prepare()
        for part in self.parts:
            part.log_z()


class Exclusion(Composition):
    """`~a`: inputs that the part does not describe. `(~a) ** 2` avoids them more.

    For an expert with a class, these are inputs of the other classes, log(1 - p(y | x)) / T. The
    densities of classes have log p(x) in common: less density of one would mean less of all.
    Otherwise log p = -log(1 + a(x) / exp(level)). Both are at most 0, so that b & ~a is
    normalisable if b is.

    Args:
        part: what is not wanted.
        level: the log density, as `part.log_density` returns it, below which nothing changes. By
            default 99 % of the samples of `part` have a higher one. An expert with a class needs
            none; with a level, its density is avoided instead.
    """

    normalisable = False

    def __init__(self, part: Any, level: float | None = None):
        self.part, self._given_level = as_composition(part), level
        self.part.check_normalisable("~")
        self._level = level
        if self._has_class:  # here, as temperatures cannot be read in a graph
            expert = self.part.first
            classes = [y for y in range(expert.model.num_classes) if y != expert.label]
            self._others = [Expert(expert.model, y) for y in classes]
            self._all = Expert(expert.model)

    @property
    def level(self) -> float:
        if self._level is None:
            self._level = constants.level(self.part)
        return self._level

    @property
    def _has_class(self) -> bool:
        return (
            self._given_level is None
            and isinstance(self.part, Expert)
            and self.part.label is not None
        )

    def combine(self, of: Of) -> tf.Tensor:
        if self._has_class:
            return self._log_other_classes(of)
        return -tf.nn.softplus(self.part.combine(of) - self.level)

    def _log_other_classes(self, of: Of) -> tf.Tensor:
        """log(1 - p(y | x)) / T, by the logits of the other classes: 1 - p rounds to 0."""
        temperature = self._all.temperature
        logits = tf.stack([temperature * of(expert) for expert in self._others])
        return tf.reduce_logsumexp(logits, axis=0) / temperature - of(self._all)

    def experts(self) -> Iterator[Expert]:
        return self.part.experts()

    def relabelled(self, labels: Iterator[int | None]) -> Composition:
        return Exclusion(self.part.relabelled(labels), self._given_level)

    def prepare(self) -> None:
        self.part.prepare()
        if not self._has_class:
            _ = self.level

    def __repr__(self) -> str:
        return f"~{self.part!r}"


def joined(left: Composition, right: Any) -> Mixture:
    """`left | right`. The parts of a mixture without a share of its own keep theirs."""
    sides = [side if isinstance(side, Mixture) else Mixture([side]) for side in (left, right)]
    parts = [part for side in sides for part in side.parts]
    return Mixture(parts, [number for side in sides for number in side.numbers])
