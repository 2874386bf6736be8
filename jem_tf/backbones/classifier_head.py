"""A head for JEM on features that begins with the predictions of a trained classifier.

    f(x)[y] = log p_0(y | x) + g(x)[y]

p_0 is a linear classifier on the vectors, fitted to the logits of the trained one, and g are dense
layers. log p(x), the log-sum-exp of f, begins nearly flat, and training does not have to learn the
classes again. Not here: JEM on features (`model/encoding.py`).
"""

import keras
import numpy as np
from keras import layers

from jem_tf.backbones.plain import mlp
from jem_tf.checks import check_positive


def classifier_head(
    vectors: np.ndarray,
    logits: np.ndarray,
    units: int = 256,
    depth: int = 3,
    scale: float = 0.5,
) -> keras.Model:
    """Dense layers beside a frozen linear layer that repeats the `logits` of a classifier.

    ```python
    encoder = keras.Model(network.inputs[0], network.layers[-2].output)
    head = classifier_head(encoder.predict(x_train), network.predict(x_train))
    model = jem_tf.JEM(head, encoder=encoder)
    ```

    Args:
        vectors: of training rows, `[n, features]`.
        logits: of the same rows, `[n, classes]`.
        units: of a hidden layer.
        depth: the number of hidden layers.
        scale: what the logits are multiplied with. Most classifiers are more certain of training
            rows than of others; the dense layers learn what is missing.
    """
    check_positive("scale", scale)
    if vectors.ndim != 2 or logits.ndim != 2 or len(vectors) != len(logits):
        raise ValueError(
            "`vectors` and `logits` must be matrices with a row for each input. Received: "
            f"shapes {vectors.shape} and {logits.shape}"
        )
    columns = np.column_stack([vectors, np.ones(len(vectors))])
    *kernel, bias = np.linalg.lstsq(columns, scale * logits, rcond=None)[0]
    classes = logits.shape[1]
    linear = layers.Dense(classes, activation="log_softmax", name="classifier", trainable=False)
    inputs = keras.Input(vectors.shape[1:])
    outputs = layers.Add()([linear(inputs), mlp(inputs.shape[1:], classes, units, depth)(inputs)])
    linear.set_weights([np.stack(kernel), bias])
    return keras.Model(inputs, outputs, name="classifier_head")
