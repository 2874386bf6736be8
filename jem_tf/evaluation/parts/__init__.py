"""The parts of an evaluation: each measures all subjects and yields results as soon as it has any.

A part is a module with a function `measure(job)`, which yields pairs of a subject's name and a
dict of new results for `metrics.json`.

Not here: the measures (`measures/`), and the order of the parts (`pipeline.py`).
"""

from jem_tf.evaluation.parts.job import Job, Results

__all__ = ["Job", "Results"]
