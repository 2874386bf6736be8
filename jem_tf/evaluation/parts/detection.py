"""The part on out-of-distribution detection: every score on every out-of-distribution set.

Not here: the measures (`measures/detection.py`).
"""

from typing import Any

import numpy as np

from jem_tf.data.dataset import stride
from jem_tf.detection.calibration import risk_coverage
from jem_tf.detection.detector import FUSED
from jem_tf.energy import OOD_SCORES
from jem_tf.evaluation.measures.detection import Detection, detection, oscr
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
            for kind in (FUSED, *OOD_SCORES)
            if kind in subject.score_kinds
        }
        results = {"ood": detections, "histograms": histograms}
        if subject.has_verdict and out_scores:
            results["verdict"] = _measure_verdict(in_scores, out_scores)
        yield subject.name, results


def _measure_verdict(inside: Scores, outside: dict[str, Scores]) -> dict[str, Any]:
    """Measure the verdict `is_ood` as it is used: what it flags, and the answers that are left.

    The risk of "answer or abstain" counts answers to out-of-distribution inputs as errors. The
    order of answers is that of the largest probability, with flagged inputs last.
    """
    correct = inside["logits"].argmax(-1) == inside["y"]
    together = [inside, *outside.values()]
    keys = "is_ood", "max_probability"
    flagged, confidence = (np.concatenate([s[key] for s in together]) for key in keys)
    right = np.zeros(len(flagged), bool)
    right[: len(correct)] = correct
    return {
        "false_alarms": float(inside["is_ood"].mean()),
        "flagged": {name: float(scores["is_ood"].mean()) for name, scores in outside.items()},
        "oscr": {
            name: oscr(inside[FUSED], correct, scores[FUSED]) for name, scores in outside.items()
        },
        "aurc": risk_coverage(confidence - flagged, right).aurc,
        "aurc_without": risk_coverage(confidence, right).aurc,
    }


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
