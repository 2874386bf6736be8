"""The part on samples of the first subject: judged, compared with the data, and shown.

Not here: the measures (`measures/generation.py`, `measures/features.py`).
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from jem_tf import pictures
from jem_tf.data import ood_sets
from jem_tf.data.dataset import stride
from jem_tf.evaluation.measures import features, generation
from jem_tf.evaluation.parts.job import Job, Results
from jem_tf.evaluation.progress import bar
from jem_tf.evaluation.subjects.base import Subject

MAX_COLUMNS = 10  # of a grid of images, and classes shown
MAX_BUFFER_IMAGES = 50
MIN_PUBLISHED_SAMPLES = 10_000  # for a Fréchet distance that is comparable with published ones


class Rows(NamedTuple):
    """Labelled rows of the data that samples are compared with."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def measure(job: Job) -> Results:
    """Measure samples by an independent classifier, distances to training rows, and features."""
    subject = job.subjects[0]
    if not subject.can_sample:  # a plain classifier has no density to sample
        return
    samples, labels = _draw_samples(job, subject)
    if not len(samples) or samples.shape[1:] != subject.shape:  # of an encoder: features
        return
    rows = Rows(
        *job.labelled_rows("train", job.budget.train_rows),
        *job.labelled_rows("test", job.budget.feature_rows),
    )
    chains = subject.jem.stored_chains() if subject.jem is not None else None
    results, nearest = _compare(job, subject, samples, labels, rows, chains)
    yield subject.name, {"generation": results}
    if job.data.pixel_range is not None:
        grids = _grids(job, subject, samples, labels, rows.x[nearest], chains)
        results["pictures"] = _save_grids(job, grids)
        yield subject.name, {"generation": results}
        if subject.jem is not None:
            results["pictures"]["chains"] = _save_animation(job, subject)
            yield subject.name, {"generation": results}
    results["features"] = _measure_features(job, subject, samples, rows)
    yield subject.name, {"generation": results}


def chain_frames(jem: Any, labels: np.ndarray, steps: int, frames: int, seed: int) -> np.ndarray:
    """Return chains of the classes `labels` on their way from noise: `[frames + 1, n, ...]`."""
    steps_per_frame = max(1, steps // frames)
    classes = tf.constant(labels, tf.int32)

    @tf.function(autograph=False)
    def advance(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return jem.run_chains(x, seed, classes, steps_per_frame)[0]

    x = jem.start.draw(len(labels), tf.constant([seed, 0]), classes)
    images = [np.asarray(x)]
    for i in bar(range(frames), frames, about="chains from noise"):
        x = advance(x, tf.constant([seed, i + 1]))
        images.append(np.asarray(x))
    return np.stack(images)


def _draw_samples(job: Job, subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """Return the finite ones among samples of all classes, and their labels."""
    budget = job.budget
    per_class = max(1, min(budget.samples_per_class, budget.max_samples // subject.num_classes))
    labels = np.repeat(np.arange(subject.num_classes), per_class)
    samples = subject.sample(labels, job.seed, budget.sample_steps)
    finite = np.isfinite(samples).all(tuple(range(1, samples.ndim)))
    if not finite.all():
        job.notes.append(f"{subject.name}: {(~finite).sum()} samples are non-finite")
    return samples[finite], labels[finite]


def _compare(
    job: Job,
    subject: Subject,
    samples: np.ndarray,
    labels: np.ndarray,
    rows: Rows,
    chains: np.ndarray | None,
) -> tuple[dict[str, Any], np.ndarray]:
    """Return measures of the samples and the index of the training row nearest to each."""
    predict = None if job.judge is None else job.judge.predict_classes
    judge = generation.Judge(rows.x, rows.y, predict=predict)
    neighbours, nearest = generation.neighbours(samples, rows.x, rows.x_test)
    results: dict[str, Any] = {
        "steps": subject.sample_steps or job.budget.sample_steps,
        "samples": len(samples),
        "train_rows": len(rows.x),
        "judge": "a support vector machine" if job.judge is None else job.judge.name,
        "quality": judge.quality(samples, labels),
        "judge_accuracy": float((judge.predict(rows.x_test) == rows.y_test).mean()),
        "neighbours": neighbours,
    }
    if chains is not None:
        predicted = subject.scores(chains, "buffer")["logits"].argmax(-1)
        results["buffer"] = {"chains": len(chains), "quality": judge.quality(chains, predicted)}
    return results, nearest


def _grids(
    job: Job,
    subject: Subject,
    samples: np.ndarray,
    labels: np.ndarray,
    nearest: np.ndarray,
    chains: np.ndarray | None,
) -> dict[str, tuple[np.ndarray, int]]:
    """Return the images of each picture, and the number of columns of its grid."""
    by_class = [
        samples[labels == k][:MAX_COLUMNS] for k in range(min(subject.num_classes, MAX_COLUMNS))
    ]
    columns = min(map(len, by_class))
    spread = np.arange(0, len(samples), max(1, len(samples) // MAX_COLUMNS))[:MAX_COLUMNS]
    grids = {"neighbours": (np.concatenate([samples[spread], nearest[spread]]), len(spread))}
    if columns:
        grids["samples"] = (np.concatenate([row[:columns] for row in by_class]), columns)
    if chains is not None:
        grids["buffer"] = (chains[:MAX_BUFFER_IMAGES], MAX_COLUMNS)
    if "log_density" in subject.score_kinds:
        grids["likely"] = _most_and_least_likely(job, subject)
    return grids


def _most_and_least_likely(job: Job, subject: Subject) -> tuple[np.ndarray, int]:
    """Return the test rows with the highest and the lowest log p(x)."""
    x_test, _ = job.data.arrays("test", job.budget.feature_rows)
    density = job.test_scores[subject.name]["log_density"]
    density = density[:: stride(len(density), job.budget.feature_rows)][: len(x_test)]
    order = np.argsort(np.where(np.isfinite(density), density, -np.inf))
    columns = min(MAX_COLUMNS, len(order))
    return x_test[np.concatenate([order[::-1][:columns], order[:columns]])], columns


def _save_grids(job: Job, grids: dict[str, tuple[np.ndarray, int]]) -> dict[str, str]:
    for name, (images, columns) in grids.items():
        pictures.save_grid(job.to_unit_pixels(images), columns, job.out / f"{name}.png")
    return {name: f"{name}.png" for name in grids}


def _save_animation(job: Job, subject: Subject) -> str:
    classes = np.arange(min(subject.num_classes, MAX_COLUMNS))
    steps, frames = job.budget.sample_steps, job.budget.animation_frames
    images = chain_frames(subject.jem, classes, steps, frames, job.seed)
    pictures.save_animation(job.to_unit_pixels(images), len(classes), job.out / "chains.gif")
    return "chains.gif"


def _measure_features(
    job: Job, subject: Subject, samples: np.ndarray, rows: Rows
) -> dict[str, Any]:
    """Return Fréchet distance and Inception score of samples, test rows and noise."""
    extract, space = job.extract, Path(str(job.features)).name
    if extract is None:
        space = "a small classifier trained on the data"
        x = job.to_unit_pixels(rows.x)
        extract = features.small_classifier(
            x, rows.y, subject.num_classes, job.seed, job.budget.classifier_rows
        )
    n = min(len(samples), len(rows.x_test))
    train = extract(job.to_unit_pixels(rows.x[: job.budget.feature_rows]))
    noise = ood_sets.load("noise", job.data, n, job.seed)
    of_samples, of_test, of_noise = (
        extract(job.to_unit_pixels(x)) for x in (samples[:n], rows.x_test[:n], noise)
    )
    return {
        "space": space,
        # Published figures use the frozen graph and tens of thousands of samples.
        "published": Path(str(job.features)).suffix == ".pb" and n >= MIN_PUBLISHED_SAMPLES,
        "samples": n,
        "fid": generation.frechet(train.values, of_samples.values),
        "fid_test": generation.frechet(train.values, of_test.values),
        "fid_noise": generation.frechet(train.values, of_noise.values),
        "inception_score": generation.inception_score(of_samples.probabilities),
        "inception_score_test": generation.inception_score(of_test.probabilities),
    }
