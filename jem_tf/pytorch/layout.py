"""Names that `cli/training.py` still uses; see `conversion.py`."""

from jem_tf.pytorch.conversion import build
from jem_tf.pytorch.conversion import parse_arch as sizes
from jem_tf.pytorch.conversion import read_checkpoint as read

__all__ = ["build", "read", "sizes"]
