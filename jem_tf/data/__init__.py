"""Data sets to train and test on, and out-of-distribution sets for them."""

from jem_tf.data.dataset import Dataset
from jem_tf.data.sources import UnknownDataset, class_names, load, resizes

__all__ = ["Dataset", "UnknownDataset", "class_names", "load", "resizes"]
