"""JEM: log p(x, y) = log p(y | x) + log p(x), the paper's objective."""

from typing import Any

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

    def __init__(
        self, weight: float = 0.2, lag: float = 4.0, energy_penalty: float = 0.0, **kwargs: Any
    ):
        super().__init__(weight, lag, energy_penalty, **kwargs)
