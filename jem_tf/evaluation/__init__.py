"""Evaluation of a classifier: calibration, detection, robustness and samples, with a report.

| module | what it answers |
|---|---|
| `subjects/` | what can be evaluated? Keras models, SavedModels, endpoints |
| `measures/` | which numbers? functions on arrays and networks |
| `parts/` | what is measured on each subject? |
| `pipeline.py` | in which order, and what is written when? |
| `report/` | what does a reader see? |

Not here: training. A model is used by its public methods only.
"""

from jem_tf.evaluation.budget import BUDGETS, Budget
from jem_tf.evaluation.pipeline import EvaluationInterrupted, evaluate
from jem_tf.evaluation.subjects import Subject, of, open_subject

__all__ = [
    "BUDGETS",
    "Budget",
    "EvaluationInterrupted",
    "Subject",
    "evaluate",
    "of",
    "open_subject",
]
