"""IGEBM (Du and Mordatch, 2019): an energy-based model without a classifier in the loss."""

from typing import Any

import keras

from jem_tf.objectives.sampled import SampledObjective


@keras.saving.register_keras_serializable("jem_tf")
class IGEBM(SampledObjective):
    """An energy-based model of inputs, of p(x) or of p(x | y), with small energies.

    ```python
    JEM(backbones.convnet(shape, 10, spectral=True), objective=IGEBM())      # p(x)
    JEM(backbone, objective=IGEBM(conditional=True))                         # p(x | y)
    ```

    Args:
        conditional: learn p(x | y). Otherwise labels are not used, and single logits have no
            meaning.
        energy_penalty: the regularisation of energies in their paper, where its weight is 1, for
            networks with spectral norm. The default here is smaller.
    """

    classifies = False

    def __init__(
        self,
        conditional: bool = False,
        weight: float = 1.0,
        lag: float = 4.0,
        energy_penalty: float = 0.01,
        **kwargs: Any,
    ):
        super().__init__(weight, lag, energy_penalty, **kwargs)
        self.conditional = self.by_class = self.needs_labels = bool(conditional)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "conditional": self.conditional}
