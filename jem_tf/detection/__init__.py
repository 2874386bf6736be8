"""Calibrated probabilities and out-of-distribution verdicts, fitted on held-out data.

Not here: scores themselves (`energy.py`), and how well they detect (`evaluation/measures/`). All
functions take NumPy arrays. `import jem_tf` loads this package, so that SciPy is imported only in
the functions that need it.
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
from jem_tf.detection.threshold import FALSE_ALARM_RATE, fit_threshold, is_flagged

__all__ = [
    "FALSE_ALARM_RATE",
    "Classification",
    "Reliability",
    "RiskCoverage",
    "classification",
    "confidence_of",
    "fit_temperature",
    "fit_threshold",
    "is_flagged",
    "reliability",
    "risk_coverage",
]
