"""Whether a score tells inputs that belong from inputs that do not.

AUROC is the chance that a random input that belongs scores above one that does not.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from jem_tf.energy import OOD_SCORES


def auroc(inside: np.ndarray, outside: np.ndarray) -> float:
    """AUROC of scores that should be higher `inside` than `outside`."""
    truth = np.repeat([1, 0], [len(inside), len(outside)])
    return float(roc_auc_score(truth, np.concatenate([inside, outside])))


def auroc_table(
    model: Any, inside: np.ndarray, outside: Mapping[str, np.ndarray]
) -> dict[str, dict[str, float]]:
    """AUROC of every OOD score of `model` (rows) against every set (columns)."""
    table = {}
    for kind in OOD_SCORES:
        scores = model.ood_score(inside, kind)
        table[kind] = {name: auroc(scores, model.ood_score(x, kind)) for name, x in outside.items()}
    return table
