"""The model."""

from jem_tf.model.jem import JEM

__all__ = ["JEM"]
