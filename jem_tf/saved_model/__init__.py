"""Exports."""

from jem_tf.saved_model.exporter import export

__all__ = ["export"]
