"""The part on classification and calibration; it also keeps the scores of the test rows.

Not here: the measures (`jem_tf/detection/calibration.py`).
"""

import numpy as np

from jem_tf.detection import calibration
from jem_tf.evaluation.parts.job import Job, Results

BATCH_SIZE = 256


def measure(job: Job) -> Results:
    """Measure accuracy, calibration before and after scaling, and risk against coverage."""
    test = job.data.batches("test", BATCH_SIZE)
    for subject in job.subjects:
        scores = subject.scores(test, f"{subject.name}: test rows", labelled=True)
        job.test_scores[subject.name] = scores
        finite, labelled = np.isfinite(scores["logits"]).all(1), scores["y"] >= 0
        for usable, problem in ((finite, "non-finite logits"), (labelled, "no label")):
            if not usable.all():
                job.notes.append(
                    f"{subject.name}: {(~usable).sum()} test rows have {problem}; they are left "
                    "out of classification and calibration"
                )
        logits, y = (scores[key][finite & labelled] for key in ("logits", "y"))
        if len(y) < 2:
            continue
        confidence, correct = calibration.confidence_of(logits, y)
        scaled, temperatures = calibration.scale_by_cross_fitting(logits, y)
        scaled_confidence, _ = calibration.confidence_of(scaled, y)
        yield (
            subject.name,
            {
                "classification": calibration.classification(logits, y),
                "calibration": {
                    "before": calibration.reliability(confidence, correct),
                    "adaptive": calibration.reliability(confidence, correct, adaptive=True),
                    "after": calibration.reliability(scaled_confidence, correct),
                    "temperatures": temperatures,
                },
                "selective": calibration.risk_coverage(confidence, correct),
            },
        )
