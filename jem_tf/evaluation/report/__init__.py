"""The report of an evaluation: `report.html`, its charts, and the same figures as text.

Not here: measuring. Everything comes from the contents of `metrics.json`.
"""

from jem_tf.evaluation.report.figures import accuracy_at, answers, rows, table
from jem_tf.evaluation.report.page import check_installed, write

__all__ = ["accuracy_at", "answers", "check_installed", "rows", "table", "write"]
