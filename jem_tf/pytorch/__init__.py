"""Checkpoints of the JEM authors' PyTorch code, read and written without PyTorch.

Not here: a PyTorch implementation (`benchmarks/torch_jem.py`, for comparisons).
"""

from jem_tf.pytorch.conversion import Checkpoint, build, load, parse_arch, read_checkpoint, save

__all__ = ["Checkpoint", "build", "load", "parse_arch", "read_checkpoint", "save"]
