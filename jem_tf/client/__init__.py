"""A client for any TF Serving endpoint: the wire is all it knows."""

from jem_tf.client.client import AsyncJEMClient, JEMClient, Predictions, ServingError

__all__ = ["AsyncJEMClient", "JEMClient", "Predictions", "ServingError"]
