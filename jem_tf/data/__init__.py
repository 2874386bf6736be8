"""What to train and test on, and what does not belong with it."""

from jem_tf.data.dataset import Dataset
from jem_tf.data.sources import UnknownDataset, class_names, load, resizes

__all__ = ["Dataset", "UnknownDataset", "class_names", "load", "resizes"]
