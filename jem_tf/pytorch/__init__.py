"""Models of the JEM authors' PyTorch code here, and models from here there; PyTorch is not needed.

Not here: a PyTorch implementation (`benchmarks/`, `tests/pytorch/`, to compare with).
"""

from jem_tf.pytorch.layout import load, save

__all__ = ["load", "save"]
