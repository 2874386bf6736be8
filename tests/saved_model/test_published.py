"""Models that are published with the project load without it, and know what their data says."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from jem_tf.saved_model import layout

ARCHIVES = sorted((Path(__file__).parents[2] / "saved_models").glob("*.tar.xz"))
MAX_BYTES = 5e6


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.split(".")[0])
def archive(request):
    return request.param


def test_a_published_model_answers_its_examples(archive, tmp_path):
    """Examples are validation rows, one of each class: a model that was packed wrongly is at
    chance, 1 of 10."""
    assert archive.stat().st_size < MAX_BYTES
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    version = layout.newest(tmp_path / archive.name.split(".")[0])
    described = json.loads((version / layout.METADATA).read_text())
    x = np.float32(json.loads((version / layout.EXAMPLES).read_text())["instances"])
    model = tf.saved_model.load(str(version))
    answer = model.signatures["serving_default"](inputs=tf.constant(x))
    correct = answer["class_id"].numpy() == described["example_labels"]
    assert correct.mean() >= 0.6
    assert answer["is_ood"].numpy().mean() <= 0.3
    noise = np.random.default_rng(0).uniform(x.min(), x.max(), (20, *x.shape[1:]))
    answer = model.signatures["serving_default"](inputs=tf.constant(noise, tf.float32))
    assert answer["is_ood"].numpy().all()
