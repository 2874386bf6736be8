"""How samples are drawn from p(x) or p(x | y): samplers and the places their chains start."""

from jem_tf.sampling.mala import MALA
from jem_tf.sampling.sgld import SGLD
from jem_tf.sampling.starts import GaussianMixture, Uniform

__all__ = ["MALA", "SGLD", "GaussianMixture", "Uniform"]
