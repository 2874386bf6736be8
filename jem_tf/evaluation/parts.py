"""The parts of an evaluation: each measures all models, and yields what it found as it goes.

Not here: the measures themselves, and the order and writing of the parts (`evaluate.py`).
"""

import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf import pictures
from jem_tf.data import Dataset, ood_set
from jem_tf.evaluation import calibration, generation, ood, robustness
from jem_tf.evaluation.budget import Budget
from jem_tf.evaluation.subjects import Subject

HISTOGRAM_BINS = 60

Found = Iterator[tuple[str, dict[str, Any]]]  # the name of a model, and what is new about it


@dataclasses.dataclass
class Job:
    """What all parts share."""

    subjects: list[Subject]
    data: Dataset
    ood: tuple[str, ...]
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
        if not finite.all():
            job.notes.append(
                f"{subject.name}: {(~finite).sum()} test rows have logits that are "
                "no numbers; they are left out of classification"
            )
        logits, y = found["logits"][finite], found["y"][finite]
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
        inside = {k: v[: job.budget.rows] for k, v in job.tested[subject.name].items()}
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
    x, y = job.data.arrays("test", max(job.budget.attack_rows, 500))
    for subject in job.subjects:
        curves: dict[str, list[robustness.Curve]] = {}
        for variant, curve in _curves(job, subject, x, y):
            curves.setdefault(variant, []).append(curve)
            yield subject.name, {"robustness": curves}
        for variant, found in curves.items():
            warnings = [w for curve in found for w in curve.warnings]
            warnings += robustness.compare(found)
            job.notes += [f"{subject.name} {variant}: {w}" for w in warnings]
        if subject.network is not None and job.attacks:
            yield subject.name, {"distal": _distal(job, subject)}


def _curves(
    job: Job, subject: Subject, x: np.ndarray, y: np.ndarray
) -> Iterator[tuple[str, robustness.Curve]]:
    budget, bounds = job.budget, job.data.pixel_range or (-1.0, 1.0)
    rows = {"boundary": budget.boundary_rows, "pointwise": budget.pointwise_rows}
    network = subject.network or _asked(subject)
    for kind in job.attacks:
        if kind in robustness.WHITE_BOX and subject.network is None:
            continue
        n = rows.get(kind, budget.attack_rows)
        steps = budget.boundary_steps if kind == "boundary" else budget.attack_steps
        yield "", robustness.attack(kind, network, x[:n], y[:n], bounds, steps=steps, starts=x)
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
    threshold = np.quantile(job.tested[subject.name][kind], 0.05)
    flagged = (subject.scores(found)[kind] < threshold).mean()
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
    labels = np.repeat(np.arange(subject.num_classes), budget.per_class)
    x, y = data.arrays("train", max(10_000, budget.feature_rows))
    x_test, y_test = data.arrays("test", budget.feature_rows)
    samples = subject.sample(labels, job.seed, budget.sample_steps)
    judge = generation.Judge(x, y)
    near, index = generation.neighbours(samples, x, x_test)
    found: dict[str, Any] = {
        "steps": budget.sample_steps,
        "samples": len(samples),
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
        found["pictures"] = _pictures(job, subject, samples, x[index], x_test, chains)
        yield subject.name, {"generation": found}
    found["features"] = _features(job, subject, extract, samples, (x, y), x_test)
    yield subject.name, {"generation": found}


def _pictures(
    job: Job,
    subject: Subject,
    samples: np.ndarray,
    nearest: np.ndarray,
    test: np.ndarray,
    chains: np.ndarray | None,
) -> dict[str, str]:
    """Grids and an animation; the names of their files."""
    per_class = job.budget.per_class
    by_class = samples.reshape(subject.num_classes, per_class, *subject.shape)
    some = np.arange(0, len(samples), max(1, len(samples) // 10))[:10]
    grids = {
        "samples": (by_class[:10, :10].reshape(-1, *subject.shape), min(per_class, 10)),
        "neighbours": (np.concatenate([samples[some], nearest[some]]), len(some)),
    }
    if chains is not None:
        grids["buffer"] = (chains[:50], 10)
    if "log_density" in subject.kinds:
        order = np.argsort(job.tested[subject.name]["log_density"][: len(test)])
        ends = min(10, len(order))
        likely = np.concatenate([order[::-1][:ends], order[:ends]])
        grids["likely"] = (test[likely], ends)
    names = {}
    for name, (images, columns) in grids.items():
        names[name] = f"{name}.png"
        pictures.save_grid(_pixels(job, images), columns, job.out / names[name])
    if subject.jem is not None:
        classes = np.arange(min(subject.num_classes, 10))
        frames = generation.chain_frames(
            subject.jem, classes, job.budget.sample_steps, 40, job.seed
        )
        pictures.save_animation(_pixels(job, frames), len(classes), job.out / "chains.gif")
        names["chains"] = "chains.gif"
    return names


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
        extract = generation.small_classifier(train[0], train[1], subject.num_classes, job.seed)
    else:
        space = Path(str(job.features)).name
    real, held, fake = (extract(x) for x in (train[0][: job.budget.feature_rows], test, samples))
    noise = extract(ood_set("noise", job.data, len(samples), job.seed))
    return {
        "space": space,
        "published": job.features is not None,
        "samples": len(samples),
        "fid": generation.frechet(real.values, fake.values),
        "fid_test": generation.frechet(real.values, held.values[: len(samples)]),
        "fid_noise": generation.frechet(real.values, noise.values),
        "inception_score": generation.inception_score(fake.probabilities),
        "inception_score_test": generation.inception_score(held.probabilities[: len(samples)]),
    }


def train_log(job: Job) -> Found:
    if job.log is None or not Path(job.log).is_file():
        return
    with Path(job.log).open() as file:
        rows = list(csv.DictReader(file))
    curves = {}
    for key in rows[0] if rows else ():
        try:
            curves[key] = [float(row[key]) for row in rows]
        except (TypeError, ValueError):
            continue  # a line cut short by an interruption, or not numbers
    yield job.subjects[0].name, {"training": curves}


def _asked(subject: Subject) -> robustness.Network:
    """A subject without gradients as a function of tensors."""

    def ask(x: np.ndarray) -> np.ndarray:
        return np.asarray(subject.score_batch(x)["logits"], np.float32)

    def network(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(ask, [x], tf.float32), [None, subject.num_classes])

    return network


def _pixels(job: Job, images: np.ndarray) -> np.ndarray:
    """Images in the range of the data as images in [-1, 1]."""
    low, high = job.data.pixel_range or (-1.0, 1.0)
    return (images - low) * (2.0 / (high - low)) - 1.0


def _histogram(scores: dict[str, np.ndarray]) -> dict[str, Any]:
    """Shares of each set in common bins, which leave out the last percent at both ends."""
    finite = {name: values[np.isfinite(values)] for name, values in scores.items()}
    ends = [np.quantile(v, [0.01, 0.99]) for v in finite.values() if len(v)]
    low, high = np.min([e[0] for e in ends]), np.max([e[1] for e in ends])
    edges = np.linspace(low, max(high, low + 1e-6), HISTOGRAM_BINS + 1)
    counts = {
        name: (np.histogram(np.clip(v, edges[0], edges[-1]), edges)[0] / max(len(v), 1)).tolist()
        for name, v in finite.items()
    }
    return {"edges": edges.tolist(), "shares": counts}
