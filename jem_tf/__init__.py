"""Wrap any Keras classifier, train it with `fit`, know when to trust it."""

from jem_tf.model import JEM
from jem_tf.replay import ReplayBuffer
from jem_tf.sampling import MALA, SGLD, GaussianMixture, Uniform
from jem_tf.version import VERSION

__version__ = VERSION
__all__ = ["JEM", "MALA", "SGLD", "GaussianMixture", "ReplayBuffer", "Uniform"]
