"""Exports: a trained model as a SavedModel that TF Serving loads."""

from jem_tf.saved_model.exporter import export

__all__ = ["export"]
