"""Callbacks for `fit`: runs that resume, recover from divergence, and show their progress."""

from jem_tf.callbacks.guard import DivergenceGuard
from jem_tf.callbacks.progress import EpochLine
from jem_tf.callbacks.resume import Resume, TrainingInterrupted
from jem_tf.callbacks.samples import SampleGrid

__all__ = ["DivergenceGuard", "EpochLine", "Resume", "SampleGrid", "TrainingInterrupted"]
