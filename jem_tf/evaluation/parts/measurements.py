"""The parts of an evaluation: each measures all models, and yields what it found as it goes.

Not here: the measures themselves, and the order and writing of the parts (`evaluate.py`).
"""

import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jem_tf import pictures
from jem_tf.data import Dataset, ood_sets
from jem_tf.data.dataset import stride
from jem_tf.detection import calibration
from jem_tf.evaluation.budget import Budget
from jem_tf.evaluation.measures import detection as ood
from jem_tf.evaluation.measures import generation, robustness
from jem_tf.evaluation.subjects.in_process import Subject

HISTOGRAM_BINS = 60

Found = Iterator[tuple[str, dict[str, Any]]]  # the name of a model, and what is new about it


@dataclasses.dataclass
class Job:
    """What all parts share."""

    subjects: list[Subject]
    data: Dataset
    attacks: tuple[str, ...]
    budget: Budget
    out: Path
    seed: int = 0
    data_dir: str | None = None
    resize: bool = False
    features: str | Path | None = None
    log: Path | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    tested: dict[str, dict[str, np.ndarray]] = dataclasses.field(default_factory=dict)


def classify(job: Job) -> Found:
    test = job.data.batches("test", 256)
    for subject in job.subjects:
        found = subject.scores(test, f"{subject.name}: test rows", labelled=True)
        job.tested[subject.name] = found
        finite = np.isfinite(found["logits"]).all(1)
        usable = finite & (found["y"] >= 0)
        for bad, what in ((~finite, "logits that are no numbers"), (found["y"] < 0, "no label")):
            if bad.any():
                job.notes.append(
                    f"{subject.name}: {bad.sum()} test rows have {what}; they are left out of "
                    "classification and calibration"
                )
        logits, y = found["logits"][usable], found["y"][usable]
        if len(y) < 2:
            continue
        confidence, right = calibration.confidence_of(logits, y)
        scaled, temperatures = calibration.cross_scaled(logits, y)
        after, _ = calibration.confidence_of(scaled, y)
        yield (
            subject.name,
            {
                "classification": calibration.classification(logits, y),
                "calibration": {
                    "before": calibration.reliability(confidence, right),
                    "adaptive": calibration.reliability(confidence, right, adaptive=True),
                    "after": calibration.reliability(after, right),
                    "temperatures": temperatures,
                },
                "selective": calibration.selective(confidence, right),
            },
        )


def detect(job: Job, sets: dict[str, np.ndarray]) -> Found:
    for subject in job.subjects:
        tested = job.tested[subject.name]
        step = stride(len(tested["y"]), job.budget.rows)
        inside = {k: v[::step][: job.budget.rows] for k, v in tested.items()}
        outside = {name: subject.scores(x, f"{subject.name}: {name}") for name, x in sets.items()}
        detections = {
            kind: {
                name: ood.detection(inside[kind], scores[kind], seed=job.seed)
                for name, scores in outside.items()
            }
            for kind in subject.kinds
        }
        for kind, by_set in detections.items():
            for name, result in by_set.items():
                if result.non_finite:
                    job.notes.append(
                        f"{subject.name}: {result.non_finite} scores {kind} of "
                        f"{name} or of the data are no numbers; they count as lowest"
                    )
        shown = {job.data.name: inside, **outside}
        yield (
            subject.name,
            {
                "ood": detections,
                "histograms": {
                    kind: _histogram({name: scores[kind] for name, scores in shown.items()})
                    for kind in subject.kinds
                },
            },
        )


def attack(job: Job) -> Found:
    """Accuracy under attack of each model, of JEM-k, and what fools them from noise."""
    if job.data.pixel_range is None:
        job.notes.append("robustness: only measured for images, where sizes have a meaning")
        return
    x, y = _labelled(*job.data.arrays("test", max(job.budget.attack_rows, 500)))
    for subject in job.subjects:
        curves: dict[str, list[robustness.Curve]] = {}
        before = list(job.notes)
        for variant, curve in _curves(job, subject, x, y):
            curves.setdefault(variant, []).append(curve)
            job.notes[:] = before + [
                " ".join(filter(None, (subject.name, name))) + f": {warning}"
                for name, found in curves.items()
                for warning in [w for c in found for w in c.warnings] + robustness.compare(found)
            ]
            yield subject.name, {"robustness": curves}
        if subject.network is not None and job.attacks:
            yield subject.name, {"distal": _distal(job, subject)}


def _curves(
    job: Job, subject: Subject, x: np.ndarray, y: np.ndarray
) -> Iterator[tuple[str, robustness.Curve]]:
    budget, bounds = job.budget, job.data.pixel_range or (-1.0, 1.0)
    rows = {"boundary": budget.boundary_rows, "pointwise": budget.pointwise_rows}
    for kind in job.attacks:
        if kind in robustness.WHITE_BOX and subject.network is None:
            continue
        n = rows.get(kind, budget.attack_rows)
        steps = budget.boundary_steps if kind == "boundary" else budget.attack_steps
        yield (
            "",
            robustness.attack(
                kind,
                subject.network,
                x[:n],
                y[:n],
                bounds,
                steps=steps,
                starts=x,
                answer=None if subject.network else subject.answer,
            ),
        )
    if subject is not job.subjects[0] or subject.jem is None or not subject.samples:
        return
    n = budget.refine_rows
    for k in budget.refine:
        for kind in (a for a in job.attacks if a in budget.refine_attacks):
            yield (
                f"JEM-{k}",
                robustness.attack(
                    kind,
                    robustness.refined(subject.jem, k, budget.draws),
                    x[:n],
                    y[:n],
                    bounds,
                    epsilons=robustness.default_sizes(kind, subject.shape)[::-3],
                    steps=budget.attack_steps,
                    classify=robustness.refined(subject.jem, k),
                ),
            )


def _distal(job: Job, subject: Subject) -> dict[str, Any]:
    """Pictures, confidences, and the share that the OOD score would flag as exports do."""
    classes = np.arange(min(subject.num_classes, 10))
    bounds = job.data.pixel_range or (-1.0, 1.0)
    assert subject.network is not None
    found, confidence = robustness.distal(
        subject.network, classes, subject.shape, bounds, job.budget.distal_steps, job.seed
    )
    name = f"distal_{job.subjects.index(subject)}.png"
    pictures.save_grid(_pixels(job, found), len(classes), job.out / name)
    kind = subject.kinds[0]
    threshold = np.nanquantile(job.tested[subject.name][kind], 0.05)
    flagged = (~(subject.scores(found)[kind] >= threshold)).mean()  # NaN, too, as exports do
    return {
        "picture": name,
        "confidence": confidence.tolist(),
        "score": kind,
        "flagged": float(flagged),
    }


def generate(job: Job, extract: generation.Extractor | None) -> Found:
    """Samples of the first model, before a judge, beside training rows, and in features."""
    subject, budget, data = job.subjects[0], job.budget, job.data
    if not subject.samples:  # a plain classifier has no density to show
        return
    per_class = max(1, min(budget.per_class, budget.samples // subject.num_classes))
    labels = np.repeat(np.arange(subject.num_classes), per_class)
    x, y = _labelled(*data.arrays("train", budget.train_rows))
    x_test, y_test = _labelled(*data.arrays("test", budget.feature_rows))
    samples = subject.sample(labels, job.seed, budget.sample_steps)
    finite = np.isfinite(samples).all(tuple(range(1, samples.ndim)))
    if not finite.all():
        job.notes.append(f"{subject.name}: {(~finite).sum()} samples are no numbers")
        if not finite.any():
            return
        samples, labels = samples[finite], labels[finite]
    judge = generation.Judge(x, y)
    near, index = generation.neighbours(samples, x, x_test)
    found: dict[str, Any] = {
        "steps": subject.sample_steps or budget.sample_steps,
        "samples": len(samples),
        "train_rows": len(x),
        "quality": judge.quality(samples, labels),
        "judge_accuracy": float((judge.predict(x_test) == y_test).mean()),
        "neighbours": near,
    }
    chains = None
    if subject.jem is not None and subject.jem.buffer.filled:
        chains = subject.jem.buffer.arrays()["chains"].reshape(-1, *subject.shape)
        seen = subject.scores(chains, "buffer")["logits"].argmax(-1)
        found["buffer"] = {"chains": len(chains), "quality": judge.quality(chains, seen)}
    yield subject.name, {"generation": found}
    if data.pixel_range is not None:
        found["pictures"] = _pictures(job, subject, samples, labels, x[index], chains)
        yield subject.name, {"generation": found}
        if subject.jem is not None:
            found["pictures"]["chains"] = _animation(job, subject)
            yield subject.name, {"generation": found}
    found["features"] = _features(job, subject, extract, samples, (x, y), x_test)
    yield subject.name, {"generation": found}


def _pictures(
    job: Job,
    subject: Subject,
    samples: np.ndarray,
    labels: np.ndarray,
    nearest: np.ndarray,
    chains: np.ndarray | None,
) -> dict[str, str]:
    """Grids of images; the names of their files."""
    rows = [samples[labels == k][:10] for k in range(min(subject.num_classes, 10))]
    width = min(map(len, rows))
    some = np.arange(0, len(samples), max(1, len(samples) // 10))[:10]
    grids = {"neighbours": (np.concatenate([samples[some], nearest[some]]), len(some))}
    if width:
        grids["samples"] = (np.concatenate([row[:width] for row in rows]), width)
    if chains is not None:
        grids["buffer"] = (chains[:50], 10)
    if "log_density" in subject.kinds:
        test, _ = job.data.arrays("test", job.budget.feature_rows)
        density = job.tested[subject.name]["log_density"]
        density = density[:: stride(len(density), job.budget.feature_rows)][: len(test)]
        order = np.argsort(np.where(np.isfinite(density), density, -np.inf))
        ends = min(10, len(order))
        grids["likely"] = (test[np.concatenate([order[::-1][:ends], order[:ends]])], ends)
    for name, (images, columns) in grids.items():
        pictures.save_grid(_pixels(job, images), columns, job.out / f"{name}.png")
    return {name: f"{name}.png" for name in grids}


def _animation(job: Job, subject: Subject) -> str:
    classes = np.arange(min(subject.num_classes, 10))
    frames = generation.chain_frames(subject.jem, classes, job.budget.sample_steps, 40, job.seed)
    pictures.save_animation(_pixels(job, frames), len(classes), job.out / "chains.gif")
    return "chains.gif"


def _labelled(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x[y >= 0], y[y >= 0]


def _features(
    job: Job,
    subject: Subject,
    extract: generation.Extractor | None,
    samples: np.ndarray,
    train: Any,
    test: np.ndarray,
) -> dict[str, Any]:
    """FID and Inception score of the samples, and of as much data for comparison."""
    space = "a small classifier trained on the data"
    if extract is None:
        extract = generation.small_classifier(
            _pixels(job, train[0]), train[1], subject.num_classes, job.seed
        )
    else:
        space = Path(str(job.features)).name
    n = min(len(samples), len(test))
    real = extract(_pixels(job, train[0][: job.budget.feature_rows]))
    noise = ood_sets.load("noise", job.data, n, job.seed)
    fake, held, wrong = (extract(_pixels(job, x)) for x in (samples[:n], test[:n], noise))
    return {
        "space": space,
        # Published figures are about the frozen graph and tens of thousands of samples.
        "published": Path(str(job.features)).suffix == ".pb" and n >= 10_000,
        "samples": n,
        "fid": generation.frechet(real.values, fake.values),
        "fid_test": generation.frechet(real.values, held.values),
        "fid_noise": generation.frechet(real.values, wrong.values),
        "inception_score": generation.inception_score(fake.probabilities),
        "inception_score_test": generation.inception_score(held.probabilities),
    }


def train_log(job: Job) -> Found:
    if job.log is None or not Path(job.log).is_file():
        return
    with Path(job.log).open() as file:
        rows = list(csv.DictReader(file))
    whole = [row for row in rows if None not in row.values()]  # not cut by an interruption
    curves = {}
    for key in whole[0] if whole else ():
        try:
            curves[key] = [float(row[key]) for row in whole]
        except ValueError:
            continue  # not numbers
    yield job.subjects[0].name, {"training": curves}


def _pixels(job: Job, images: np.ndarray) -> np.ndarray:
    """Images in the range of the data as images in [-1, 1]; other inputs as they are."""
    low, high = job.data.pixel_range or (-1.0, 1.0)
    return (images - low) * (2.0 / (high - low)) - 1.0


def _histogram(scores: dict[str, np.ndarray]) -> dict[str, Any]:
    """Shares of each set in common bins; the outer ones hold the last percent at both ends."""
    finite = {name: values[np.isfinite(values)] for name, values in scores.items()}
    ends = [np.quantile(v, [0.01, 0.99]) for v in finite.values() if len(v)] or [np.zeros(2)]
    low, high = np.min([e[0] for e in ends]), np.max([e[1] for e in ends])
    edges = np.linspace(low, max(high, low + 1e-6), HISTOGRAM_BINS + 1)
    counts = {
        name: (np.histogram(np.clip(v, edges[0], edges[-1]), edges)[0] / max(len(v), 1)).tolist()
        for name, v in finite.items()
    }
    return {"edges": edges.tolist(), "shares": counts}
