"""An encoder with whitened vectors, on which chains of one step size move well.

Not here: JEM on features (`model/encoding.py`).
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

BATCH_SIZE = 64
QUANTILE = 0.999  # of the absolute values, which becomes 1
MIN_DEVIATION = 1e-4  # of a component, in units of the first one's: others are rounding errors


def whitened(encoder: keras.Model, x: Any, units: int = 32) -> keras.Model:
    """`encoder` followed by its first `units` principal components, uncorrelated and of one scale.

    ```python
    encoder = whitened(keras.Model(network.inputs[0], network.layers[-2].output), x_train)
    model = jem_tf.JEM(jem_tf.backbones.mlp(encoder.output_shape[1:], 10), encoder=encoder)
    ```

    Args:
        encoder: a Sequential or functional model from raw inputs to vectors.
        x: raw training inputs, an array or a list of strings.
        units: the number of components, if the vectors have so many.
    """
    from sklearn.decomposition import PCA

    begins = range(0, len(x), BATCH_SIZE)
    batches = (tf.convert_to_tensor(np.asarray(x[b : b + BATCH_SIZE])) for b in begins)
    parts = [encoder(batch, training=False).numpy() for batch in batches]
    vectors = np.concatenate(parts).astype(np.float64)
    pca = PCA(min(units, *vectors.shape), random_state=0).fit(vectors)
    deviations = np.sqrt(pca.explained_variance_)
    kept = deviations > MIN_DEVIATION * deviations[0]
    if not kept.any():
        raise ValueError("`encoder` returns the same vector for all rows of `x`.")
    kernel = (pca.components_[kept] / deviations[kept, np.newaxis]).T
    kernel /= np.quantile(np.abs((vectors - pca.mean_) @ kernel), QUANTILE)
    layer = keras.layers.Dense(kernel.shape[1], name="whitened")
    outputs = layer(encoder.outputs[0])
    layer.set_weights([kernel, -pca.mean_ @ kernel])
    return keras.Model(encoder.inputs[0], outputs, name=f"{encoder.name}_whitened")
