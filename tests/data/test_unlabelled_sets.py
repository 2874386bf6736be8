"""Sets of TensorFlow Datasets without classes, such as celeb_a, as out-of-distribution sets."""

from unittest import mock

import numpy as np
import pytest

from jem_tf import data
from jem_tf.data import ood_sets


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A celeb_a of 12 images with its own features: an image, landmarks and attributes."""
    import tensorflow_datasets as tfds

    directory = str(tmp_path_factory.mktemp("tfds"))
    builder = tfds.builder("celeb_a", data_dir=directory)
    features = builder.info.features
    others = {
        "landmarks": dict.fromkeys(features["landmarks"], 1),
        "attributes": dict.fromkeys(features["attributes"], True),
        "identity": dict.fromkeys(features["identity"], 1),
    }

    def rows():
        for i in range(12):
            yield i, {"image": np.full(features["image"].shape, 20 * i, np.uint8), **others}

    generators = lambda self, manager: {"train": rows(), "test": rows()}  # noqa: E731
    with mock.patch.object(type(builder), "_split_generators", generators):
        builder.download_and_prepare()
    return directory


def test_images_without_classes_are_an_out_of_distribution_set(directory, digits):
    x = ood_sets.load("celeb_a", digits, 12, data_dir=directory, resize=True)
    assert x.shape == (12, 8, 8, 1)
    gray = np.sort(x.reshape(12, -1).mean(1))
    np.testing.assert_allclose(gray, np.arange(12) * 20 / 127.5 - 1.0, atol=0.02)  # JPEG


def test_a_set_without_classes_cannot_be_trained_on(directory):
    with pytest.raises(ValueError, match="'celeb_a' is not for image classification"):
        data.load("celeb_a", directory, 32)
