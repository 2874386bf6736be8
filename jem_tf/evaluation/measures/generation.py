"""Whether samples look like the data, and whether they are copies of training rows.

Not here: the feature spaces (`features.py`), and sampling (the model).
FID = |m - n|^2 + tr(C + D - 2 (C D)^(1/2)) for features with means m, n and covariances C, D.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from scipy.spatial.distance import pdist

from jem_tf.evaluation.progress import working

MAX_JUDGE_ROWS = 10_000
MAX_DISTANCE_ROWS = 500  # rows whose distances to each other are computed
COPY_QUANTILE = 0.01  # of the distances from test rows to training rows
MIN_SPLIT_ROWS = 100  # of the Inception score
MIN_PROBABILITY = 1e-16


@dataclass(frozen=True)
class SampleQuality:
    """Comparison of class-conditional samples with data of the same classes.

    ```python
    Judge(x_train, y_train).quality(samples, labels).diversity
    ```
    """

    recognised: float  # share that an independent classifier assigns to the intended class
    diversity: float  # mean distance within a class, relative to that of the data


@dataclass(frozen=True)
class Neighbours:
    """Distances from samples, and from test rows, to the nearest training row.

    ```python
    distances, nearest = neighbours(samples, x_train, x_test)
    distances.copies, x_train[nearest]
    ```
    """

    samples: float  # median Euclidean distance
    test: float
    copies: float  # share of samples at most as far as the nearest 1 % of test rows


class Judge:
    """An independent classifier: by default a support vector machine trained on the data.

    ```python
    judge = Judge(x_train, y_train)
    judge.quality(model.sample(100, label=3), np.full(100, 3)).recognised
    ```

    Args:
        x: training rows `[n, ...]`, of which at most the first `limit` are used.
        y: their labels `[n]`.
        predict: inputs to their classes, of a classifier that is trained already. The machine
            compares pixels, which is too little for photographs.
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray,
        limit: int = MAX_JUDGE_ROWS,
        predict: Callable[[np.ndarray], np.ndarray] | None = None,
    ):
        self.x, self.y = _flat(x[:limit]), y[:limit]
        self.predict = predict or _support_vector_machine(self.x, self.y)

    def quality(self, samples: np.ndarray, labels: np.ndarray) -> SampleQuality:
        """Measure `samples` `[n, ...]` that were drawn for the classes `labels` `[n]`."""
        flat = _flat(samples)
        ratios = [
            mean_distance(flat[labels == k]) / mean_distance(self.x[self.y == k])
            for k in np.unique(labels)
            if (labels == k).sum() > 1 and (self.y == k).sum() > 1
        ]
        recognised = (self.predict(samples) == labels).mean()
        return SampleQuality(float(recognised), float(np.mean(ratios)) if ratios else float("nan"))


def _support_vector_machine(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    from sklearn.svm import SVC

    with working("training the judge"):
        machine = SVC(C=10.0).fit(x, y)
    return lambda samples: machine.predict(_flat(samples))


def mean_distance(rows: np.ndarray) -> float:
    """Return the mean Euclidean distance between two different rows of `[n, features]`."""
    return float(pdist(rows[:MAX_DISTANCE_ROWS]).mean()) if len(rows) > 1 else float("nan")


def neighbours(
    samples: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[Neighbours, np.ndarray]:
    """Measure how near samples are to training rows; also return the index of the nearest row."""
    from sklearn.neighbors import NearestNeighbors

    with working("nearest training inputs"):
        search = NearestNeighbors(n_neighbors=1).fit(_flat(train))
        distance, nearest = search.kneighbors(_flat(samples))
        test_distance, _ = search.kneighbors(_flat(test))
    copies = (distance <= np.quantile(test_distance, COPY_QUANTILE)).mean()
    medians = float(np.median(distance)), float(np.median(test_distance))
    return Neighbours(*medians, float(copies)), nearest[:, 0]


def frechet(first: np.ndarray, second: np.ndarray) -> float:
    """Return the FID of two sets of features `[n, features]`."""
    means = [x.mean(0) for x in (first, second)]
    covariances = [np.atleast_2d(np.cov(x, rowvar=False)) for x in (first, second)]
    # C D is similar to a positive semi-definite matrix: its eigenvalues are real and >= 0.
    roots = np.sqrt(np.maximum(linalg.eigvals(covariances[0] @ covariances[1]).real, 0.0)).sum()
    trace = sum(np.trace(c) for c in covariances)
    return float(((means[0] - means[1]) ** 2).sum() + trace - 2.0 * roots)


def inception_score(probabilities: np.ndarray, splits: int = 10) -> float:
    """Return exp of the mean KL divergence from p(y | x) to p(y), averaged over `splits`.

    Every split has at least `MIN_SPLIT_ROWS` of the rows of `probabilities` `[n, classes]`.
    """
    # Shuffled: samples are often in the order of their classes.
    rows = np.random.default_rng(0).permutation(probabilities.astype(np.float64))
    scores = []
    for part in np.array_split(rows, max(1, min(splits, len(rows) // MIN_SPLIT_ROWS))):
        log_p = np.log(np.maximum(part, MIN_PROBABILITY))
        kl = (part * (log_p - np.log(np.maximum(part.mean(0), MIN_PROBABILITY)))).sum(1)
        scores.append(np.exp(kl.mean()))
    return float(np.mean(scores))


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1)
