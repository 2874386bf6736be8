"""A client for any TF Serving endpoint; it needs only the server's address."""

from jem_tf.client.client import AsyncJEMClient, JEMClient, Predictions, ServingError

__all__ = ["AsyncJEMClient", "JEMClient", "Predictions", "ServingError"]
