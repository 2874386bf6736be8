"""The model: `JEM`, and `load` for models that were saved."""

from jem_tf.model.jem import JEM
from jem_tf.model.loading import load

__all__ = ["JEM", "load"]
