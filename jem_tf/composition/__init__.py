"""Several trained models as one density. A new combination needs no training.

Not here: the models. Energies add up for `&`, their log-sum-exp is `|`, and `~` subtracts them
within bounds.
"""

from collections.abc import Sequence
from typing import Any

from jem_tf.composition.base import Composition
from jem_tf.composition.expert import Expert
from jem_tf.composition.operators import Exclusion, Mixture, Product

__all__ = ["Composition", "Exclusion", "Expert", "Mixture", "Product", "compose"]


def compose(models: Sequence[Any], weights: Sequence[float] | None = None) -> Composition:
    """The product of models, with `weights` (default 1) of their energies.

    ```python
    both = jem_tf.compose([parity, size], weights=[1.0, 0.5])
    both.sample(16, labels=(1, 0))        # odd, and small
    ```

    `Expert(parity) & Expert(size) ** 0.5` is the same. `Composition` has the other operators.
    """
    return Product(list(models), weights)
