"""The part on classification and calibration; it also keeps the scores of the test rows.

Not here: the measures (`jem_tf/detection/calibration.py`).
"""

import numpy as np

from jem_tf.detection import calibration
from jem_tf.evaluation.parts.job import Job, Results
from jem_tf.evaluation.subjects.base import Subject

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
        temperature = _fit_temperature(job, subject)
        scaled_confidence, _ = calibration.confidence_of(logits / temperature, y)
        yield (
            subject.name,
            {
                "classification": calibration.classification(logits, y),
                "calibration": {
                    "before": calibration.reliability(confidence, correct),
                    "adaptive": calibration.reliability(confidence, correct, adaptive=True),
                    "after": calibration.reliability(scaled_confidence, correct),
                    "temperature": temperature,
                },
                "selective": calibration.risk_coverage(confidence, correct),
            },
        )


def _fit_temperature(job: Job, subject: Subject) -> float:
    """Return the temperature of an export: fitted on validation rows, or 1 without them."""
    logits, y = _validation_logits(job, subject)
    if len(y):
        return calibration.fit_temperature(logits, y)
    job.notes.append(
        f"{subject.name}: there are no labelled validation rows with finite logits; the "
        "temperature is 1, so that calibration is the same before and after scaling"
    )
    return 1.0


def _validation_logits(job: Job, subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    x = y = np.zeros(0, np.int64)
    if int(job.data.validation.cardinality()) != 0:  # test sets of TensorFlow Datasets have none
        x, y = job.labelled_rows("validation", calibration.MAX_CALIBRATION_ROWS)
    batches = [x[begin : begin + BATCH_SIZE] for begin in range(0, len(x), BATCH_SIZE)]
    none = np.zeros((0, subject.num_classes))
    logits = np.concatenate([none, *map(subject.predict_logits, batches)])
    finite = np.isfinite(logits).all(1)
    return logits[finite], y[finite]
