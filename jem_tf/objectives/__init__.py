"""How a batch becomes a loss, one file for each member of the family."""

from typing import Any

from jem_tf._tf.replicas import mean_share
from jem_tf.checks import check_known
from jem_tf.objectives.base import Batch, Objective, Terms
from jem_tf.objectives.cross_entropy import CrossEntropy
from jem_tf.objectives.dual_adversarial import DualAdversarial
from jem_tf.objectives.energy_discrepancy import EnergyDiscrepancy
from jem_tf.objectives.factored import Factored
from jem_tf.objectives.fce import FCE
from jem_tf.objectives.flow import Flow
from jem_tf.objectives.hdge import HDGE
from jem_tf.objectives.igebm import IGEBM
from jem_tf.objectives.joint import Joint
from jem_tf.objectives.nce import NCE
from jem_tf.objectives.score_matching import ScoreMatching
from jem_tf.objectives.supcon import SupCon

OBJECTIVES = {
    "joint": Joint,
    "factored": Factored,
    "igebm": IGEBM,
    "hdge": HDGE,
    "supcon": SupCon,
    "nce": NCE,
    "fce": FCE,
    "dual_adversarial": DualAdversarial,
    "score_matching": ScoreMatching,
    "energy_discrepancy": EnergyDiscrepancy,
    "cross_entropy": CrossEntropy,
}


def get(objective: str | Objective | None, **options: Any) -> Objective:
    """Return the objective of this name, created with `options`; an `Objective` as it is."""
    if isinstance(objective, Objective):
        return objective
    name = "joint" if objective is None else objective
    if not isinstance(name, str):
        raise TypeError(f"`objective` must be a name or an Objective. Received: {objective!r}")
    check_known("objective", name, OBJECTIVES)
    return OBJECTIVES[name](**options)


__all__ = [
    "FCE",
    "HDGE",
    "IGEBM",
    "NCE",
    "OBJECTIVES",
    "Batch",
    "CrossEntropy",
    "DualAdversarial",
    "EnergyDiscrepancy",
    "Factored",
    "Flow",
    "Joint",
    "Objective",
    "ScoreMatching",
    "SupCon",
    "Terms",
    "get",
    "mean_share",
]
