"""log p(x, y) = log p(x | y) + log p(y): the other factorisation, the paper's ablation."""

import keras

from jem_tf.objectives.sampled import SampledObjective


@keras.saving.register_keras_serializable("jem_tf")
class Factored(SampledObjective):
    """Learns p(x | y) for each class by chains of that class; p(y) is constant.

    ```python
    JEM(backbone, objective="factored")
    ```

    The density of each class has its own unknown Z. Nothing compares the classes, so the model
    classifies worse than one trained with cross-entropy (in the paper 30 % on CIFAR-10).
    """

    classifies = False
    by_class = True
    needs_labels = True
