"""Models whose exports compress well, to be published with a project.

Not here: the export itself (`exporter.py`).
"""

import math

import numpy as np
import tensorflow as tf

from jem_tf.model import JEM

DETECTOR_BYTES = 1e6
LARGE = 10_000  # values of an array that is rounded; the layer of the logits is smaller


def compact(model: JEM) -> None:
    """Round `model` to bfloat16, and limit its detector, which is to be fitted again, to 1 MB.

    ```python
    compact(model)
    jem_tf.export(model, "saved_models/cifar10", calibrate=(x, y))
    # tar -cJf cifar10.tar.xz -C saved_models cifar10
    ```

    Large kernels and the starts of chains keep their dtype. Half of their bytes are zero then,
    which an archive does not store. Layers in bfloat16 compute the same as before.
    """
    for weight in model.backbone.weights:
        if math.prod(weight.shape) > LARGE:
            weight.assign(_rounded(weight))
    if model.start is not None:
        starts = model.start.arrays().items()
        model.start.assign(**{k: _rounded(v).numpy() for k, v in starts if v.size > LARGE})
    model.detector.clear()
    model.detector.max_bytes = min(model.detector.max_bytes, DETECTOR_BYTES)
    model.forget_traces()


def _rounded(value: tf.Tensor | np.ndarray) -> tf.Tensor:
    return tf.cast(tf.cast(value, tf.bfloat16), tf.float32)
