"""Data sets that tests of this package read."""

from unittest import mock

import numpy as np
import pytest

from jem_tf import data


@pytest.fixture(scope="session")
def digits():
    return data.load("digits")


@pytest.fixture(scope="session")
def write_mnist(tmp_path_factory):
    """A function that writes a small MNIST with TensorFlow Datasets; returns its data directory."""

    def write(**splits):
        """Write `count` images for each split; each image has the constant value of its index."""
        import tensorflow_datasets as tfds

        def rows(count):
            for i in range(count):
                yield i, {"image": np.full((28, 28, 1), 5 * i, np.uint8), "label": i % 10}

        directory = str(tmp_path_factory.mktemp("tfds"))
        builder = tfds.builder("mnist", data_dir=directory)
        generators = {name: rows(count) for name, count in splits.items()}
        with mock.patch.object(
            type(builder), "_split_generators", lambda self, dl_manager: generators
        ):
            builder.download_and_prepare()
        return directory

    return write


@pytest.fixture(scope="session")
def mnist_directory(write_mnist):
    """The data directory of an MNIST with 20 training images and 10 test images."""
    return write_mnist(train=20, test=10)
