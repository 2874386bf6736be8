"""Wrap any Keras classifier, train it with `fit`, know when to trust it."""

import sys
from pathlib import Path

from jem_tf.version import VERSION

# Importing registers the classes with Keras, so that it can load what was saved. Only the
# `jem-tf` command goes without, to answer `--help` before TensorFlow is there.
if Path(sys.argv[0]).name != "jem-tf":
    from jem_tf import backbones, objectives
    from jem_tf._tf.cores import side_by_side
    from jem_tf.composition import compose
    from jem_tf.model.jem import JEM
    from jem_tf.sampling import MALA, SGLD, GaussianMixture, Uniform
    from jem_tf.sampling.replay import ReplayBuffer
    from jem_tf.saved_model.exporter import export

__version__ = VERSION
__all__ = [
    "JEM",
    "MALA",
    "SGLD",
    "GaussianMixture",
    "ReplayBuffer",
    "Uniform",
    "backbones",
    "compose",
    "export",
    "objectives",
    "side_by_side",
]
