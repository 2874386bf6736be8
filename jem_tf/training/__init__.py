"""Training runs."""

from jem_tf.training.run import train

__all__ = ["train"]
