"""The values that a pixel can have: evenly spaced levels, such as 256 from -1 to 1.

Not here: the noise that Glow adds to them (`glow.py`). step = (high - low) / (count - 1).
"""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class Levels:
    """`count` levels from `low` to `high`."""

    count: int
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.count < 2 or not self.low < self.high:
            raise ValueError(
                "`levels` must be 2 or more, and `pixel_range` must increase. Received: "
                f"levels={self.count}, pixel_range={(self.low, self.high)}"
            )

    @property
    def step(self) -> float:
        """The distance of two levels."""
        return (self.high - self.low) / (self.count - 1)

    @property
    def span(self) -> float:
        """The width of all levels, each as wide as a step."""
        return self.count * self.step

    def numbers(self, x: Any) -> tf.Tensor:
        """The number of the nearest level of each pixel, from 0."""
        x = tf.convert_to_tensor(x, tf.float32)
        return tf.round((tf.clip_by_value(x, self.low, self.high) - self.low) / self.step)

    def quantise(self, x: Any) -> tf.Tensor:
        """x with each pixel at the nearest level."""
        return self.low + self.numbers(x) * self.step
