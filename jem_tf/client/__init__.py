"""A client for any TF Serving endpoint; it needs only the server's address."""

from jem_tf.client.async_client import AsyncJEMClient
from jem_tf.client.base import Predictions, ServingError
from jem_tf.client.client import JEMClient

__all__ = ["AsyncJEMClient", "JEMClient", "Predictions", "ServingError"]
