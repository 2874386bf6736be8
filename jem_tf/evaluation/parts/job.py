"""The job of an evaluation: everything that its parts share.

Not here: the parts.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jem_tf.data import Dataset
from jem_tf.evaluation.budget import Budget
from jem_tf.evaluation.measures.features import Extractor
from jem_tf.evaluation.subjects.base import Subject

Results = Iterator[tuple[str, dict[str, Any]]]  # the name of a subject, and new results for it


@dataclasses.dataclass
class Job:
    """What to evaluate, on which data, how thoroughly, and where to write pictures.

    ```python
    job = Job([subject], data.load("digits"), ("linf",), BUDGETS["quick"], Path("report"))
    for name, results in classification.measure(job):
        print(name, results)
    ```

    Attributes:
        subjects: the subject of the report, and possibly a baseline.
        attack_sizes: sizes of attacks by name; the others have their default sizes.
        judge: a classifier that samples are recognised by; None to train one.
        ood_inputs: out-of-distribution inputs `[n, ...]` by the name of their set.
        extract: an extractor of Inception features; None to train a small classifier.
        features: the file that `extract` was read from.
        log: `log.csv` of the training.
        notes: texts for the report; parts add to them.
        test_scores: the scores of the test rows by the name of the subject, of the first part.
    """

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
    attack_sizes: dict[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    judge: Subject | None = None
    ood_inputs: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    extract: Extractor | None = None
    notes: list[str] = dataclasses.field(default_factory=list)
    test_scores: dict[str, dict[str, np.ndarray]] = dataclasses.field(default_factory=dict)

    @property
    def bounds(self) -> tuple[float, float]:
        """The values of black and white pixels."""
        return self.data.pixel_range or (-1.0, 1.0)

    def to_unit_pixels(self, images: np.ndarray) -> np.ndarray:
        """Map images from the range of the data to [-1, 1]; other inputs stay unchanged."""
        low, high = self.bounds
        return (images - low) * (2.0 / (high - low)) - 1.0

    def labelled_rows(self, split: str, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the labelled ones among `limit` rows of a split."""
        x, y = self.data.arrays(split, limit)
        return x[y >= 0], y[y >= 0]
