"""The part on out-of-distribution detection: every score on every out-of-distribution set.

Not here: the measures (`measures/detection.py`).
"""

from typing import Any

import numpy as np

from jem_tf.data.dataset import stride
from jem_tf.evaluation.measures.detection import Detection, detection
from jem_tf.evaluation.parts.job import Job, Results

HISTOGRAM_BINS = 60
TAIL = 0.01  # share of a set at either end that the outer bins collect

Scores = dict[str, np.ndarray]


def measure(job: Job) -> Results:
    """Measure how well each score detects each set, with histograms of the scores."""
    for subject in job.subjects:
        test_scores = job.test_scores[subject.name]
        step = stride(len(test_scores["y"]), job.budget.rows)
        in_scores = {k: v[::step][: job.budget.rows] for k, v in test_scores.items()}
        out_scores: dict[str, Scores] = {
            name: subject.scores(x, f"{subject.name}: {name}") for name, x in job.ood_inputs.items()
        }
        detections = {
            kind: {
                name: detection(in_scores[kind], scores[kind], seed=job.seed)
                for name, scores in out_scores.items()
            }
            for kind in subject.score_kinds
        }
        job.notes += _non_finite_notes(subject.name, detections)
        sets = {job.data.name: in_scores, **out_scores}
        histograms = {
            kind: _histogram({name: scores[kind] for name, scores in sets.items()})
            for kind in subject.score_kinds
        }
        yield subject.name, {"ood": detections, "histograms": histograms}


def _non_finite_notes(subject: str, detections: dict[str, dict[str, Detection]]) -> list[str]:
    return [
        f"{subject}: {result.non_finite} scores {kind} of {name} or of the data are non-finite; "
        "they count as lowest"
        for kind, results in detections.items()
        for name, result in results.items()
        if result.non_finite
    ]


def _histogram(scores: Scores) -> dict[str, Any]:
    """Return the edges of common bins, and the share of each set in each bin."""
    finite = {name: values[np.isfinite(values)] for name, values in scores.items()}
    ends = [np.quantile(v, [TAIL, 1 - TAIL]) for v in finite.values() if len(v)] or [np.zeros(2)]
    low, high = np.min([e[0] for e in ends]), np.max([e[1] for e in ends])
    edges = np.linspace(low, max(high, low + 1e-6), HISTOGRAM_BINS + 1)
    shares = {
        name: (np.histogram(np.clip(v, edges[0], edges[-1]), edges)[0] / max(len(v), 1)).tolist()
        for name, v in finite.items()
    }
    return {"edges": edges.tolist(), "shares": shares}
