"""The part on robustness: attacks on each subject and on JEM-k, and distal adversarials.

Not here: the measures (`measures/robustness.py`).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from jem_tf import pictures
from jem_tf.detection.conformal import FALSE_ALARM_RATE, p_values, sorted_table
from jem_tf.evaluation.measures import refined, robustness
from jem_tf.evaluation.parts.job import Job, Results
from jem_tf.evaluation.subjects.base import Subject

MIN_START_ROWS = 500  # among which attacks without gradients find inputs of other classes
MAX_DISTAL_CLASSES = 10

Curves = Iterator[tuple[str, robustness.AttackCurve]]  # "" or "JEM-k", and its curve


def measure(job: Job) -> Results:
    """Measure the accuracy of each subject and of JEM-k under attack, and distal adversarials."""
    if job.data.pixel_range is None:
        job.notes.append("robustness: measured for images only, where attack sizes have a meaning")
        return
    x, y = job.labelled_rows("test", max(job.budget.attack_rows, MIN_START_ROWS))
    for subject in job.subjects:
        curves: dict[str, list[robustness.AttackCurve]] = {}
        notes_before = list(job.notes)
        for variant, curve in _curves(job, subject, x, y):
            curves.setdefault(variant, []).append(curve)
            # Every new curve can change what the curves together say.
            job.notes[:] = notes_before + _warnings(job, subject.name, curves)
            yield subject.name, {"robustness": curves}
        if subject.logits_fn is not None and job.attacks:
            yield subject.name, {"distal": _measure_distal(job, subject)}


def _warnings(job: Job, subject: str, curves: dict[str, list[robustness.AttackCurve]]) -> list[str]:
    """What is suspicious of `curves`. The default sizes end where every input can be made gray,
    which other sizes do not: these say nothing about masked gradients."""
    return [
        f"{' '.join(filter(None, (subject, variant)))}: {warning}"
        for variant, group in curves.items()
        for warning in [
            *(warning for curve in group for warning in curve.warnings),
            *robustness.find_masked_gradients(
                [curve for curve in group if curve.attack not in job.attack_sizes]
            ),
        ]
    ]


def _curves(job: Job, subject: Subject, x: np.ndarray, y: np.ndarray) -> Curves:
    budget = job.budget
    rows = {"boundary": budget.boundary_rows, "pointwise": budget.pointwise_rows}
    for kind in job.attacks:
        if kind in robustness.WHITE_BOX and subject.logits_fn is None:
            continue
        n = rows.get(kind, budget.attack_rows)
        curve = robustness.attack(
            kind,
            subject.logits_fn,
            x[:n],
            y[:n],
            job.bounds,
            job.attack_sizes.get(kind),
            steps=budget.boundary_steps if kind == "boundary" else budget.attack_steps,
            restarts=budget.restarts,
            starts=x,
            predict=None if subject.logits_fn else subject.predict_logits,
        )
        yield "", curve
    if subject is job.subjects[0] and subject.jem is not None and subject.can_sample:
        yield from _refined_curves(job, subject, x[: budget.refine_rows], y[: budget.refine_rows])


def _refined_curves(job: Job, subject: Subject, x: np.ndarray, y: np.ndarray) -> Curves:
    budget = job.budget
    for k in budget.refine_steps:
        for norm in (kind for kind in job.attacks if kind in budget.refine_attacks):
            curve = refined.attack(
                norm,
                subject.jem,
                k,
                x,
                y,
                job.bounds,
                job.attack_sizes.get(norm)
                or robustness.default_epsilons(norm, subject.shape)[::-3],
                budget.attack_steps,
                budget.restarts,
                budget.noise_draws,
                budget.square_steps,
            )
            yield f"JEM-{k}", curve


def _measure_distal(job: Job, subject: Subject) -> dict[str, Any]:
    """Return confidences, a picture, and the share that the out-of-distribution score flags."""
    classes = np.arange(min(subject.num_classes, MAX_DISTAL_CLASSES))
    assert subject.logits_fn is not None
    images, confidence = robustness.distal_adversarials(
        subject.logits_fn, classes, subject.shape, job.bounds, job.budget.distal_steps, job.seed
    )
    picture = f"distal_{job.subjects.index(subject)}.png"
    pictures.save_grid(job.to_unit_pixels(images), len(classes), job.out / picture)
    kind, scores = subject.score_kinds[0], subject.scores(images)
    if subject.has_verdict:
        flagged = scores["is_ood"]
    else:
        table = sorted_table(job.test_scores[subject.name][kind])
        flagged = p_values(scores[kind], table).numpy() <= FALSE_ALARM_RATE
    return {
        "picture": picture,
        "confidence": confidence.tolist(),
        "score": kind,
        "flagged": float(flagged.mean()),
    }
