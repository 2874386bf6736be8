"""Whether samples look like the data: judged by other models, measured in features, and compared
with the training rows they might be copies of.

FID = |m - n|^2 + tr(C + D - 2 (C D)^(1/2)) of the features' means m, n and covariances C, D.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from scipy import linalg
from scipy.spatial.distance import pdist

from jem_tf.evaluation.progress import bar, working


@dataclass(frozen=True)
class SampleQuality:
    """How samples of known classes compare with data of those classes."""

    recognised: float  # share that an independent classifier gives the intended class
    diversity: float  # mean distance within a class, as a share of the data's


@dataclass(frozen=True)
class Neighbours:
    """How far samples are from the nearest training row, beside how far test rows are."""

    samples: float  # median Euclidean distance
    test: float
    copies: float  # share of samples at most as far as the nearest percent of test rows


class Features(NamedTuple):
    """What a network sees in images: `[n, features]`, and class probabilities `[n, classes]`."""

    values: np.ndarray
    probabilities: np.ndarray


Extractor = Callable[[np.ndarray], Features]


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
        with working("training the judge"):
            self.classifier = SVC(C=10.0).fit(self.x, self.y)

    def predict(self, samples: np.ndarray) -> np.ndarray:
        """The classes the judge sees in `samples`."""
        return self.classifier.predict(samples.reshape(len(samples), -1))

    def quality(self, samples: np.ndarray, labels: np.ndarray) -> SampleQuality:
        """Judge `samples` that are meant to be of classes `labels`."""
        flat = samples.reshape(len(samples), -1)
        ratio = [
            spread(flat[labels == k]) / spread(self.x[self.y == k])
            for k in np.unique(labels)
            if (labels == k).sum() > 1 and (self.y == k).sum() > 1
        ]
        recognised = (self.predict(samples) == labels).mean()
        return SampleQuality(float(recognised), float(np.mean(ratio)) if ratio else float("nan"))


def spread(rows: np.ndarray) -> float:
    """Mean Euclidean distance between two different rows."""
    return float(pdist(rows[:500]).mean()) if len(rows) > 1 else float("nan")


def neighbours(
    samples: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[Neighbours, np.ndarray]:
    """How near samples come to training rows, and the index of the nearest for each."""
    from sklearn.neighbors import NearestNeighbors

    flat = [x.reshape(len(x), -1) for x in (samples, train, test)]
    with working("nearest training inputs"):
        search = NearestNeighbors(n_neighbors=1).fit(flat[1])
        distance, nearest = search.kneighbors(flat[0])
        usual, _ = search.kneighbors(flat[2])
    copies = (distance <= np.quantile(usual, 0.01)).mean()
    return (
        Neighbours(float(np.median(distance)), float(np.median(usual)), float(copies)),
        nearest[:, 0],
    )


def frechet(first: np.ndarray, second: np.ndarray) -> float:
    """FID of two sets of features `[n, features]`: the distance of Gaussians fitted to them."""
    means = [x.mean(0) for x in (first, second)]
    covariances = [np.atleast_2d(np.cov(x, rowvar=False)) for x in (first, second)]
    # The eigenvalues of C D are those of a product of positive matrices: real and not negative.
    roots = np.sqrt(np.maximum(linalg.eigvals(covariances[0] @ covariances[1]).real, 0.0)).sum()
    trace = sum(np.trace(c) for c in covariances)
    return float(((means[0] - means[1]) ** 2).sum() + trace - 2.0 * roots)


def inception_score(probabilities: np.ndarray, splits: int = 10) -> float:
    """exp of the mean KL divergence from p(y | x) to p(y), averaged over `splits` of the rows."""
    rows = np.random.default_rng(0).permutation(probabilities.astype(np.float64))  # not by class
    scores = []
    for part in np.array_split(rows, max(1, min(splits, len(rows) // 100))):
        log_p = np.log(np.maximum(part, 1e-16))
        kl = (part * (log_p - np.log(np.maximum(part.mean(0), 1e-16)))).sum(1)
        scores.append(np.exp(kl.mean()))
    return float(np.mean(scores))


def small_classifier(x: np.ndarray, y: np.ndarray, classes: int, seed: int = 0) -> Extractor:
    """Features of a small network trained on the data, in seconds.

    For use without a network and on any data. Distances in this space say which of two models is
    nearer to the data; they are not the published FID and must not be compared with it.
    """
    import keras

    from jem_tf import backbones

    keras.utils.set_random_seed(seed)
    make = backbones.convnet if x.ndim == 4 else backbones.mlp
    network = make(x.shape[1:], classes, 16) if x.ndim == 4 else make(x.shape[1:], classes)
    network.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    epochs = int(np.clip(60_000 // len(x), 2, 30))
    for _ in bar(range(epochs), epochs, about="classifier for features"):
        network.fit(x, y, batch_size=64, verbose=0)
    last = keras.Model(network.inputs, [network.layers[-2].output, network.outputs[0]])

    def features(images: np.ndarray) -> Features:
        values, logits = last.predict(images, batch_size=256, verbose=0)
        return Features(values, tf.nn.softmax(logits).numpy())

    return features


def inception(path: str | Path) -> Extractor:
    """The standard Inception features from a local file.

    `path` is the frozen graph of Inception (`classify_image_graph_def.pb`: tensors `pool_3:0` and
    `softmax:0`, with images of 0 to 255 at `ExpandDims:0`), on which published scores are
    based, or weights for Keras' InceptionV3 (`.h5`, `.keras`), which give similar, not equal
    numbers.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"There is no Inception network at {str(path)!r}.")
    return _frozen(path) if path.suffix == ".pb" else _keras_inception(path)


def _frozen(path: Path) -> Extractor:
    graph = tf.compat.v1.GraphDef()
    try:
        graph.ParseFromString(path.read_bytes())
        function = tf.compat.v1.wrap_function(
            lambda: tf.compat.v1.import_graph_def(graph, name=""), []
        )
        pruned = function.prune("ExpandDims:0", ["pool_3:0", "softmax:0"])
    except Exception as error:  # protobuf and TensorFlow have many ways to say so
        raise ValueError(f"{str(path)!r} is not the frozen graph of Inception: {error}") from error

    def one(image: tf.Tensor) -> list[tf.Tensor]:
        values, probabilities = pruned(image[tf.newaxis])
        return [tf.reshape(values, [-1]), tf.reshape(probabilities, [-1])]

    @tf.function
    def run(images: tf.Tensor) -> list[tf.Tensor]:
        return tf.map_fn(one, images, fn_output_signature=[tf.float32, tf.float32])

    def features(images: np.ndarray) -> Features:
        # The graph takes images of any size, one at a time, and resizes them itself.
        parts = [run(tf.constant(_rgb(part) * 127.5 + 127.5)) for part in _parts(images)]
        return Features(*(np.concatenate([np.asarray(p[i]) for p in parts]) for i in (0, 1)))

    return features


def _keras_inception(path: Path) -> Extractor:
    import keras

    network = keras.applications.InceptionV3(weights=None)
    try:
        network.load_weights(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"{str(path)!r} is not weights of InceptionV3: {error}") from error
    pooled = next(x for x in network.layers if isinstance(x, keras.layers.GlobalAveragePooling2D))
    both = keras.Model(network.inputs, [pooled.output, network.output])

    def features(images: np.ndarray) -> Features:
        parts = []
        for part in _parts(images):
            parts.append(both.predict(tf.image.resize(_rgb(part), (299, 299)), verbose=0))
        return Features(*(np.concatenate([p[i] for p in parts]) for i in (0, 1)))

    return features


def _rgb(images: np.ndarray) -> np.ndarray:
    images = np.clip(images, -1.0, 1.0).astype(np.float32)
    return np.repeat(images, 3, axis=-1) if images.shape[-1] == 1 else images


def _parts(images: np.ndarray) -> list[np.ndarray]:
    return np.array_split(images, -(-len(images) // 64))


def chain_frames(jem: Any, labels: np.ndarray, steps: int, frames: int, seed: int) -> np.ndarray:
    """Chains on their way from noise: `[frames + 1, n, ...]`."""
    each = max(1, steps // frames)

    @tf.function
    def advance(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return jem.run_chains(x, seed, tf.constant(labels, tf.int32), each)[0]

    x = jem.start.draw(len(labels), tf.constant([seed, 0]), tf.constant(labels, tf.int32))
    shown = [np.asarray(x)]
    for i in bar(range(frames), frames, about="chains from noise"):
        x = advance(x, tf.constant([seed, i + 1]))
        shown.append(np.asarray(x))
    return np.stack(shown)
