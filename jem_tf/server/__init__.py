"""A server of SavedModels that speaks TF Serving's protocol; it knows nothing of JEM."""

from jem_tf.server.options import Options
from jem_tf.server.serving import ModelServer

__all__ = ["ModelServer", "Options"]
