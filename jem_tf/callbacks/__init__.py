"""Callbacks for `fit`: trainings that go on, heal themselves, and show what they learn."""

from jem_tf.callbacks.guard import DivergenceGuard
from jem_tf.callbacks.resume import Interrupted, Resume
from jem_tf.callbacks.samples import SampleGrid

__all__ = ["DivergenceGuard", "Interrupted", "Resume", "SampleGrid"]
