"""Whether samples look like the data, judged by a classifier that never saw the model.

Not here: FID and Inception score.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SampleQuality:
    """How samples of known classes compare with data of those classes."""

    recognised: float  # share that an independent classifier gives the intended class
    diversity: float  # mean distance within a class, as a share of the data's


class Judge:
    """A support vector machine trained on the data: another model, another framework.

    ```python
    judge = Judge(x_train, y_train)
    judge.quality(model.sample(100, label=3), np.full(100, 3))
    ```
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, limit: int = 10_000):
        from sklearn.svm import SVC

        self.x, self.y = x[:limit].reshape(len(x[:limit]), -1), y[:limit]
        self.classifier = SVC(C=10.0).fit(self.x, self.y)

    def predict(self, samples: np.ndarray) -> np.ndarray:
        """The classes the judge sees in `samples`."""
        return self.classifier.predict(samples.reshape(len(samples), -1))

    def quality(self, samples: np.ndarray, labels: np.ndarray) -> SampleQuality:
        """Judge `samples` that are meant to be of classes `labels`."""
        flat = samples.reshape(len(samples), -1)
        classes = np.unique(labels)
        ratio = [spread(flat[labels == k]) / spread(self.x[self.y == k]) for k in classes]
        recognised = (self.predict(samples) == labels).mean()
        return SampleQuality(float(recognised), float(np.mean(ratio)))


def spread(rows: np.ndarray) -> float:
    """Mean Euclidean distance between two different rows."""
    from scipy.spatial.distance import pdist

    return float(pdist(rows[:500]).mean()) if len(rows) > 1 else float("nan")
