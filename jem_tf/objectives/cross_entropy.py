"""-log p(y | x): a plain classifier, to compare with."""

from typing import Any

import keras

from jem_tf.objectives.base import Batch, Objective, Terms, TrainingModel


@keras.saving.register_keras_serializable("jem_tf")
class CrossEntropy(Objective):
    """Learns no density; energies and scores are those that any classifier has.

    ```python
    JEM(backbone, objective="cross_entropy")
    ```

    Args:
        label_smoothing: how much of the probability of a label is spread evenly over all classes
            in training, as in `keras.losses.CategoricalCrossentropy`.
    """

    needs_labels = True

    def __init__(self, label_smoothing: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"`label_smoothing` must be at least 0 and below 1. Received: {label_smoothing=}"
            )
        self.label_smoothing = float(label_smoothing)

    def loss(self, model: TrainingModel, batch: Batch, negatives: Any) -> Terms:
        share = self.label_smoothing / model.num_classes
        targets = (1.0 - self.label_smoothing) * batch.targets + share
        return super().loss(model, batch._replace(targets=targets), negatives)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "label_smoothing": self.label_smoothing}
