"""Measures of a classifier: calibration, OOD detection, robustness, samples, and a report of all.

They take arrays, or a `Subject` made from any Keras classifier, SavedModel or TF Serving endpoint.
"""

from jem_tf.evaluation.pipeline import BUDGETS, Interrupted, evaluate
from jem_tf.evaluation.subjects.in_process import Subject
from jem_tf.evaluation.subjects.opening import of, open_subject

__all__ = ["BUDGETS", "Interrupted", "Subject", "evaluate", "of", "open_subject"]
