"""JEM: log p(x, y) = log p(y | x) + log p(x), the paper's objective."""

import keras

from jem_tf.objectives.sampled import SampledObjective


@keras.saving.register_keras_serializable("jem_tf")
class Joint(SampledObjective):
    """Cross-entropy, and the marginal p(x) by contrast with its own samples.

    ```python
    JEM(backbone)                                  # w = 0.2
    JEM(backbone, objective=Joint(weight=1.0))     # the paper's
    ```
    """
