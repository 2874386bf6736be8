"""Models whose exports compress well, to be published with a project.

Not here: the export itself (`exporter.py`).
"""

import math

from jem_tf.detection.statistics import rounded
from jem_tf.model import JEM

DETECTOR_BYTES = 1e6
LARGE = 10_000  # values of an array that is rounded; the layer of the logits is smaller


def compact(model: JEM) -> None:
    """Round `model` to bfloat16, and limit its detector, which is to be fitted again, to 1 MB of
    rounded values.

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
            weight.assign(rounded(weight))
    if model.start is not None:
        starts = model.start.arrays().items()
        model.start.assign(**{k: rounded(v) for k, v in starts if v.size > LARGE})
    model.detector.clear()
    model.detector.rounds = True
    model.detector.max_bytes = min(model.detector.max_bytes, DETECTOR_BYTES)
    model.forget_traces()
