"""A server of SavedModels with TF Serving's protocol; it knows nothing about JEM.

`from jem_tf.server.serving import ModelServer` needs `pip install jem_tf[serve]`.
"""

from jem_tf.server.flags import Options

__all__ = ["Options"]
