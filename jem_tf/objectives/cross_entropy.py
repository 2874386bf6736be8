"""-log p(y | x): a plain classifier, to compare with."""

import keras

from jem_tf.objectives.base import Objective


@keras.saving.register_keras_serializable("jem_tf")
class CrossEntropy(Objective):
    """Learns no density; energies and scores are those that any classifier has.

    ```python
    JEM(backbone, objective="cross_entropy")
    ```
    """

    needs_labels = True
