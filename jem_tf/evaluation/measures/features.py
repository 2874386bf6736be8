"""Feature spaces in which samples are compared with data: Inception, or a small classifier.

Not here: the distances in these spaces (`generation.py`). Images are in [-1, 1].
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from jem_tf.evaluation.progress import bar

BATCH_SIZE = 64
TRAINING_ROWS = 60_000  # rows times epochs
MIN_EPOCHS, MAX_EPOCHS = 2, 30


class Features(NamedTuple):
    """Outputs of a network: features `[n, features]` and probabilities `[n, classes]`.

    ```python
    values, probabilities = inception("classify_image_graph_def.pb")(images)
    ```
    """

    values: np.ndarray
    probabilities: np.ndarray


Extractor = Callable[[np.ndarray], Features]


def small_classifier(
    x: np.ndarray,
    y: np.ndarray,
    classes: int,
    seed: int = 0,
    training_rows: int = TRAINING_ROWS,
) -> Extractor:
    """Train a small network on `x` and `y` and return its extractor of features.

    ```python
    extract = small_classifier(x_train, y_train, classes=10)
    frechet(extract(x_test).values, extract(samples).values)
    ```

    It needs no download and works for any data. Distances in this space show which of two models
    is closer to the data. They are not the published FID and must not be compared with it.
    The network sees about `training_rows` rows, in 2 to 30 epochs.
    """
    import keras

    from jem_tf import backbones

    keras.utils.set_random_seed(seed)
    shape = x.shape[1:]
    is_image = len(shape) == 3
    network = (
        backbones.convnet(shape, classes, width=16) if is_image else backbones.mlp(shape, classes)
    )
    network.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    epochs = int(np.clip(training_rows // len(x), MIN_EPOCHS, MAX_EPOCHS))
    for _ in bar(range(epochs), epochs, about="classifier for features"):
        network.fit(x, y, batch_size=64, verbose=0)
    last_layers = keras.Model(network.inputs, [network.layers[-2].output, network.outputs[0]])

    def extract(images: np.ndarray) -> Features:
        values, logits = last_layers.predict(images, batch_size=256, verbose=0)
        return Features(values, tf.nn.softmax(logits).numpy())

    return extract


def inception(path: str | Path) -> Extractor:
    """Return the extractor of the standard Inception features from a local file.

    `path` is the frozen graph of Inception (`classify_image_graph_def.pb`, with the tensors
    `ExpandDims:0` for images of 0 to 255, `pool_3:0` and `softmax:0`), on which published scores
    are based. Weights for Keras' InceptionV3 (`.h5`, `.keras`) give similar, not equal numbers.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"There is no Inception network at {str(path)!r}.")
    return _frozen_inception(path) if path.suffix == ".pb" else _keras_inception(path)


def _frozen_inception(path: Path) -> Extractor:
    graph = tf.compat.v1.GraphDef()
    try:
        graph.ParseFromString(path.read_bytes())
        function = tf.compat.v1.wrap_function(
            lambda: tf.compat.v1.import_graph_def(graph, name=""), []
        )
        pruned = function.prune("ExpandDims:0", ["pool_3:0", "softmax:0"])
    except Exception as error:  # protobuf and TensorFlow raise many types
        raise ValueError(f"{str(path)!r} is not the frozen graph of Inception: {error}") from error

    def run_image(image: tf.Tensor) -> list[tf.Tensor]:
        values, probabilities = pruned(image[tf.newaxis])
        return [tf.reshape(values, [-1]), tf.reshape(probabilities, [-1])]

    @tf.function
    def run(images: tf.Tensor) -> list[tf.Tensor]:
        # The graph takes one image of any size and resizes it.
        return tf.map_fn(run_image, images, fn_output_signature=[tf.float32, tf.float32])

    def extract(images: np.ndarray) -> Features:
        return _join([run(tf.constant(_rgb(x) * 127.5 + 127.5)) for x in _split(images)])

    return extract


def _keras_inception(path: Path) -> Extractor:
    import keras

    network = keras.applications.InceptionV3(weights=None)
    try:
        network.load_weights(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"{str(path)!r} is not weights of InceptionV3: {error}") from error
    pooled = next(x for x in network.layers if isinstance(x, keras.layers.GlobalAveragePooling2D))
    last_layers = keras.Model(network.inputs, [pooled.output, network.output])

    def run(images: np.ndarray) -> list[np.ndarray]:
        return last_layers.predict(tf.image.resize(_rgb(images), (299, 299)), verbose=0)

    def extract(images: np.ndarray) -> Features:
        return _join([run(x) for x in _split(images)])

    return extract


def _rgb(images: np.ndarray) -> np.ndarray:
    images = np.clip(images, -1.0, 1.0).astype(np.float32)
    return np.repeat(images, 3, axis=-1) if images.shape[-1] == 1 else images


def _split(images: np.ndarray) -> list[np.ndarray]:
    return np.array_split(images, -(-len(images) // BATCH_SIZE))


def _join(batches: list[list]) -> Features:
    return Features(*(np.concatenate([np.asarray(batch[i]) for batch in batches]) for i in (0, 1)))
