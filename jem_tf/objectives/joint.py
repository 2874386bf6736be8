"""JEM: log p(x, y) = log p(y | x) + log p(x), the paper's objective."""

from typing import Any

import keras
import tensorflow as tf

from jem_tf.checks import check_not_negative, check_positive_integer
from jem_tf.objectives.adversarial import worst_points
from jem_tf.objectives.base import Batch, TrainingModel
from jem_tf.objectives.sampled import SampledObjective


@keras.saving.register_keras_serializable("jem_tf")
class Joint(SampledObjective):
    """Cross-entropy, and the marginal p(x) by contrast with its own samples.

    ```python
    JEM(backbone)                                  # w = 0.2
    JEM(backbone, objective=Joint(weight=1.0))     # the paper's
    JEM(backbone, objective=Joint(radius=0.01))    # robust cross-entropy, for colour images
    ```

    `weight`, `lag`, `energy_penalty`, `ramp` and `chain_ratio` are those of `SampledObjective`.

    Args:
        radius: cross-entropy is that of the worst point within this L2 distance of x, in half
            ranges times sqrt(D); 0 means x itself. It smooths the network, whose chains then find
            shapes instead of adversarial noise.
        attack_steps: gradient steps to find that point.
    """

    def __init__(
        self,
        weight: float = 0.2,
        lag: float = 4.0,
        energy_penalty: float = 0.0,
        ramp: int = 0,
        chain_ratio: float = 1.0,
        radius: float = 0.0,
        attack_steps: int = 1,
        **kwargs: Any,
    ):
        super().__init__(weight, lag, energy_penalty, ramp, chain_ratio, **kwargs)
        check_not_negative(radius=radius)
        check_positive_integer("attack_steps", attack_steps)
        self.radius, self.attack_steps = float(radius), int(attack_steps)

    def _one_pass(self, model: TrainingModel) -> bool:
        return super()._one_pass(model) and self.radius == 0

    def _classify(self, model: TrainingModel, batch: Batch) -> tf.Tensor:
        x = model.augmented(batch.x)
        x = worst_points(model, x, batch.targets, self.radius, self.attack_steps)
        return model.training_logits(x)

    def get_config(self) -> dict[str, Any]:
        mine = {"radius": self.radius, "attack_steps": self.attack_steps}
        return {**super().get_config(), **mine}
