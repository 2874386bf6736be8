"""What can be evaluated: Keras models, SavedModels and models behind TF Serving's protocol.

Not here: measures and parts, which see only the interface `Subject`.
"""

from jem_tf.evaluation.subjects.base import Subject
from jem_tf.evaluation.subjects.opening import of, open_subject

__all__ = ["Subject", "of", "open_subject"]
