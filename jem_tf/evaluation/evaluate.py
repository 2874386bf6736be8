"""The whole evaluation, part by part, into a directory with metrics, pictures and a report.

Not here: the measures, the charts, the page. Each part is written down as soon as it is done, so
that an interruption loses only the part it falls into.
"""

import csv
import dataclasses
import difflib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from jem_tf import pictures
from jem_tf.data import SYNTHETIC, Dataset, ood_set
from jem_tf.evaluation import calibration, generation, ood, report, robustness
from jem_tf.evaluation.subjects import Subject
from jem_tf.version import VERSION

HISTOGRAM_BINS = 60


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much work goes into each part."""

    rows: int = 2_000  # test rows, and rows of each OOD set
    attack_rows: int = 250
    attack_steps: int = 20
    refine: tuple[int, ...] = (1, 10)  # the k of JEM-k
    refine_attacks: tuple[str, ...] = ("linf",)
    refine_rows: int = 32
    draws: int = 2  # of the refinement's noise, which its attacker averages over
    boundary_rows: int = 20
    boundary_steps: int = 1_000
    pointwise_rows: int = 8
    distal_steps: int = 100
    per_class: int = 10  # samples of each class
    sample_steps: int = 400
    feature_rows: int = 2_000  # data and, at most, samples that the Fréchet distance compares


BUDGETS = {
    "quick": Budget(),
    "full": Budget(
        rows=10_000,
        attack_rows=1_000,
        attack_steps=40,
        refine_attacks=robustness.WHITE_BOX,
        refine_rows=64,
        draws=4,
        boundary_rows=100,
        boundary_steps=10_000,
        pointwise_rows=50,
        distal_steps=200,
        per_class=50,
        feature_rows=10_000,
    ),
}


class Interrupted(KeyboardInterrupt):
    """Evaluation was stopped by Ctrl-C; what was finished is in `path`."""

    def __init__(self, path: Path, part: str):
        self.path = path
        super().__init__(f"Interrupted while measuring {part}; what was finished is in {path}")


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


def evaluate(
    subject: Subject,
    data: Dataset,
    out: str | Path,
    baseline: Subject | None = None,
    ood: tuple[str, ...] | None = None,
    attacks: tuple[str, ...] | None = None,
    budget: str = "quick",
    say: Callable[[str], Any] = print,
    **options: Any,
) -> dict[str, Any]:
    """Measure `subject`, and `baseline` beside it, on `data`, into directory `out`.

    ```python
    from jem_tf import data, evaluation
    evaluation.evaluate(evaluation.of(model, "mine"), data.load("digits"), "report")
    ```

    Leaves `report.html`, `metrics.json` and the pictures in them, and returns the metrics. `ood`
    are names of sets that do not belong, `attacks` names of `robustness.ATTACKS`. Further
    options: `seed`, `data_dir`, `resize` (inputs of other shapes), `features` (a file for
    `generation.inception`), `log` (the training's `log.csv`).
    """
    images = data.pixel_range is not None
    ood = tuple(SYNTHETIC[0 if images else 1 :] if ood is None else ood)
    attacks = tuple((robustness.ATTACKS if images else ()) if attacks is None else attacks)
    _check_known("budget", budget, BUDGETS)
    for name in attacks:
        _check_known("attack", name, robustness.ATTACKS)
    subjects = [subject] if baseline is None else [subject, baseline]
    for one in subjects:
        _check_subject(one, data)
    if baseline is not None and baseline.name == subject.name:
        baseline.name += " (baseline)"
    job = Job(subjects, data, ood, attacks, BUDGETS[budget], Path(out), **options)
    # Everything named is loaded before anything is measured: a mistake should not cost minutes.
    extract = None if job.features is None else generation.inception(job.features)
    sets = {name: _outside(job, name) for name in ood}
    report.check_installed()
    job.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {
        "package_version": VERSION,
        "data": data.name,
        "class_names": list(data.class_names),
        "budget": budget,
        "seed": job.seed,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "models": {one.name: {} for one in subjects},
        "notes": job.notes,
        "seconds": {},
        "interrupted": None,
    }
    for one in subjects:
        job.notes += [f"{one.name}: not measured, {what}" for what in one.lacks]
    parts: dict[str, Callable[[Job], Iterator[tuple[str, Any]]]] = {
        "classification": _classification,
        "out-of-distribution detection": lambda job: _ood(job, sets),
        "robustness": _robustness,
        "generation": lambda job: _generation(job, extract),
        "training": _training,
    }
    try:
        for name, part in parts.items():
            begin = time.monotonic()
            try:
                for model, found in part(job):
                    results["models"][model].update(found)
                    write(job.out / "metrics.json", results)
            except KeyboardInterrupt:
                results["interrupted"] = name
                raise Interrupted(job.out / "report.html", name) from None
            results["seconds"][name] = time.monotonic() - begin
            say(f"{name}: {results['seconds'][name]:.0f} s")
    finally:
        if any(results["models"].values()):
            write(job.out / "metrics.json", results)
            report.write(job.out, json.loads((job.out / "metrics.json").read_text()))
    return plain(results)


def write(path: Path, value: Any) -> None:
    """JSON that never is half a file, with null for what is not a number."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps(plain(value), indent=1, allow_nan=False) + "\n")
    os.replace(temporary, path)


def _classification(job: Job) -> Iterator[tuple[str, Any]]:
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


def _ood(job: Job, sets: dict[str, np.ndarray]) -> Iterator[tuple[str, Any]]:
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


def _robustness(job: Job) -> Iterator[tuple[str, Any]]:
    bounds = job.data.pixel_range
    if bounds is None:
        job.notes.append("robustness: only measured for images, where sizes have a meaning")
        return
    budget = job.budget
    x, y = job.data.arrays("test", max(budget.attack_rows, 500))
    rows = {"boundary": budget.boundary_rows, "pointwise": budget.pointwise_rows}
    for subject in job.subjects:
        curves: dict[str, list[Any]] = {"": []}
        for kind in job.attacks:
            if kind in robustness.WHITE_BOX and subject.network is None:
                continue
            n = rows.get(kind, budget.attack_rows)
            steps = budget.boundary_steps if kind == "boundary" else budget.attack_steps
            network = subject.network or _asked(subject)
            curves[""].append(
                robustness.attack(kind, network, x[:n], y[:n], bounds, steps=steps, starts=x)
            )
            yield subject.name, {"robustness": curves}
        if subject is job.subjects[0] and subject.samples and subject.jem is not None:
            for k in budget.refine:
                attacked = robustness.refined(subject.jem, k, budget.draws)
                answering = robustness.refined(subject.jem, k)
                n = budget.refine_rows
                curves[f"JEM-{k}"] = []
                for kind in (a for a in job.attacks if a in budget.refine_attacks):
                    curves[f"JEM-{k}"].append(
                        robustness.attack(
                            kind,
                            attacked,
                            x[:n],
                            y[:n],
                            bounds,
                            steps=budget.attack_steps,
                            epsilons=robustness.default_sizes(kind, subject.shape)[::-3],
                            classify=answering,
                        )
                    )
                    yield subject.name, {"robustness": curves}
        for name, found in curves.items():
            warnings = [w for curve in found for w in curve.warnings]
            warnings += robustness.compare(found)
            job.notes += [f"{subject.name} {name}: {w}" for w in warnings]
        if subject.network is not None and job.attacks:
            yield subject.name, {"distal": _distal(job, subject)}


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


def _generation(job: Job, extract: generation.Extractor | None) -> Iterator[tuple[str, Any]]:
    able = [s for s in job.subjects[:1] if s.samples]  # a plain classifier has no density to show
    if not able:
        return
    subject, budget, data = able[0], job.budget, job.data
    images = data.pixel_range is not None
    classes = np.arange(len(data.class_names))
    labels = np.repeat(classes, budget.per_class)
    x, y = data.arrays("train", max(10_000, budget.feature_rows))
    x_test, y_test = data.arrays("test", budget.feature_rows)
    samples = subject.sample(labels, job.seed, budget.sample_steps)
    judge = generation.Judge(x, y)
    found: dict[str, Any] = {
        "steps": budget.sample_steps,
        "samples": len(samples),
        "quality": judge.quality(samples, labels),
        "judge_accuracy": float((judge.predict(x_test) == y_test).mean()),
    }
    near, index = generation.neighbours(samples, x, x_test)
    found["neighbours"] = near
    if subject.jem is not None and subject.jem.buffer.filled:
        chains = subject.jem.buffer.arrays()["chains"].reshape(-1, *subject.shape)
        seen = subject.scores(chains, "buffer")["logits"].argmax(-1)
        found["buffer"] = {"chains": len(chains), "quality": judge.quality(chains, seen)}
        if images:
            pictures.save_grid(_pixels(job, chains[:50]), 10, job.out / "buffer.png")
            found["buffer"]["picture"] = "buffer.png"
    if images:
        shown = samples.reshape(len(classes), budget.per_class, *subject.shape)[:, :10]
        picture = shown[:10].reshape(-1, *subject.shape)
        pictures.save_grid(_pixels(job, picture), shown.shape[1], job.out / "samples.png")
        first = np.arange(0, len(samples), max(1, len(samples) // 10))[:10]
        pairs = np.concatenate([samples[first], x[index[first]]])
        pictures.save_grid(_pixels(job, pairs), 10, job.out / "neighbours.png")
        found["pictures"] = {"samples": "samples.png", "neighbours": "neighbours.png"}
    yield subject.name, {"generation": found}
    if images and "log_density" in subject.kinds:
        density = job.tested[subject.name]["log_density"]
        order = np.argsort(density[: len(x_test)])
        ends = np.concatenate([order[::-1][:10], order[:10]])
        pictures.save_grid(_pixels(job, x_test[ends]), 10, job.out / "likely.png")
        found["pictures"]["likely"] = "likely.png"
    if images and subject.jem is not None:
        frames = generation.chain_frames(
            subject.jem, classes[:10], budget.sample_steps, 40, job.seed
        )
        pictures.save_animation(_pixels(job, frames), len(classes[:10]), job.out / "chains.gif")
        found["pictures"]["chains"] = "chains.gif"
    yield subject.name, {"generation": found}
    found["features"] = _features(job, subject, extract, samples, (x, y), x_test)
    yield subject.name, {"generation": found}


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


def _training(job: Job) -> Iterator[tuple[str, Any]]:
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


def _outside(job: Job, name: str) -> np.ndarray:
    n = min(job.budget.rows, len(job.data.test))
    return ood_set(name, job.data, n, job.seed, job.data_dir, job.resize)


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


def _check_known(what: str, name: str, known: Any) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"Unknown {what} {name!r}.{hint} Known: {', '.join(known)}.")


def _check_subject(subject: Subject, data: Dataset) -> None:
    if tuple(subject.shape) != tuple(data.shape):
        raise ValueError(
            f"{subject.name} takes inputs of shape {tuple(subject.shape)}, {data.name} has "
            f"{tuple(data.shape)}: --resize (resize=True when loading) brings images to the "
            "model's shape."
        )
    if subject.num_classes != len(data.class_names):
        raise ValueError(
            f"{subject.name} knows {subject.num_classes} classes, {data.name} has "
            f"{len(data.class_names)}: {', '.join(data.class_names)}."
        )


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(vars(value))
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
