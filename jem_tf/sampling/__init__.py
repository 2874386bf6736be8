"""How chains move (`SGLD`, `MALA`), where they start, and where they stay between steps."""

from jem_tf.sampling.base import Sampler
from jem_tf.sampling.input_range import InputRange
from jem_tf.sampling.mala import MALA
from jem_tf.sampling.replay import ReplayBuffer
from jem_tf.sampling.sgld import SGLD
from jem_tf.sampling.starts import ChainStart, GaussianMixture, Uniform, default_start

__all__ = [
    "MALA",
    "SGLD",
    "ChainStart",
    "GaussianMixture",
    "InputRange",
    "ReplayBuffer",
    "Sampler",
    "Uniform",
    "default_start",
]
