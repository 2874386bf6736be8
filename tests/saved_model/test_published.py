"""Published models: small archives, whose models know their own data and flag noise."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

ARCHIVES = Path(__file__).parents[2] / "saved_models"
NAMES = ("cifar10", "fashion_mnist")


def test_all_are_tested():
    assert {path.name for path in ARCHIVES.glob("*.tar.xz")} == {f"{n}.tar.xz" for n in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_published_model_answers(name, tmp_path):
    archive = ARCHIVES / f"{name}.tar.xz"
    assert archive.stat().st_size < 5e6
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (directory,) = (tmp_path / name).iterdir()
    description = json.loads((directory / "assets.extra" / "jem.json").read_text())
    examples = json.loads((directory / "assets.extra" / "examples.json").read_text())
    x = np.float32(examples["instances"])  # validation rows, one of each class
    low, high = description["pixel_range"]
    noise = np.random.default_rng(0).uniform(low, high, (20, *x.shape[1:])).astype("f4")

    classify = tf.saved_model.load(str(directory)).signatures["serving_default"]
    answer, of_noise = classify(inputs=tf.constant(x)), classify(inputs=tf.constant(noise))
    labels = np.array(description["example_labels"])
    assert (answer["class_id"].numpy() == labels).mean() >= 0.7
    assert answer["is_ood"].numpy().mean() <= 0.3  # 5 % are expected: at most 3 of 10
    assert of_noise["is_ood"].numpy().all()
