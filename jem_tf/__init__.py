"""Wrap any Keras classifier, train it with `fit`, know when to trust it.

Importing this package registers all of its classes with Keras, so that `keras.saving.load_model`
loads whatever any part of it has saved.
"""

from jem_tf import backbones, callbacks, objectives
from jem_tf._tf import muon  # noqa: F401 (registers its class)
from jem_tf._tf.cores import side_by_side
from jem_tf.composition import Expert, compose
from jem_tf.detection.detector import Detector
from jem_tf.drift import DriftMonitor
from jem_tf.model import JEM, load
from jem_tf.sampling import MALA, SGLD, GaussianMixture, ReplayBuffer, Uniform
from jem_tf.saved_model import export
from jem_tf.scoring import score
from jem_tf.version import VERSION as __version__

__all__ = [
    "JEM",
    "MALA",
    "SGLD",
    "Detector",
    "DriftMonitor",
    "Expert",
    "GaussianMixture",
    "ReplayBuffer",
    "Uniform",
    "__version__",
    "backbones",
    "callbacks",
    "compose",
    "export",
    "load",
    "objectives",
    "score",
    "side_by_side",
]
