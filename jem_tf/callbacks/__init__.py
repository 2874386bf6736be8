"""Callbacks for `fit`: trainings that go on, and that heal themselves."""

from jem_tf.callbacks.guard import DivergenceGuard
from jem_tf.callbacks.resume import Interrupted, Resume

__all__ = ["DivergenceGuard", "Interrupted", "Resume"]
