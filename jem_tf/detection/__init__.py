"""Calibrated probabilities and out-of-distribution verdicts, fitted on held-out data.

Not here: how well scores detect (`evaluation/measures/`). `import jem_tf` loads this package, so
that SciPy and scikit-learn are imported only in the functions that need them.
"""

from jem_tf.detection.calibration import (
    Classification,
    Reliability,
    RiskCoverage,
    classification,
    confidence_of,
    fit_temperature,
    reliability,
    risk_coverage,
)
from jem_tf.detection.conformal import FALSE_ALARM_RATE, p_values, rows_needed, sorted_table
from jem_tf.detection.outliers import made_up_outliers

__all__ = [
    "FALSE_ALARM_RATE",
    "Classification",
    "Reliability",
    "RiskCoverage",
    "classification",
    "confidence_of",
    "fit_temperature",
    "made_up_outliers",
    "p_values",
    "reliability",
    "risk_coverage",
    "rows_needed",
    "sorted_table",
]
