"""Exports: numbered versions, complete or absent, which need TensorFlow only."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf import backbones
from jem_tf.saved_model import fitted


def test_versions_count_up_and_are_never_overwritten(small_model, tmp_path):
    directory = tmp_path / "m"
    (directory / "7").mkdir(parents=True)
    (directory / "notes").mkdir()
    names = [jem_tf.export(small_model, directory, warmup_batches=(1,)).name for _ in range(2)]
    assert names == ["8", "9"]
    assert not [path for path in directory.iterdir() if path.name.startswith(".")]


def test_a_failed_export_leaves_nothing_behind(small_model, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(tf.io, "TFRecordWriter", fail)
    with pytest.raises(OSError, match="disk full"):
        jem_tf.export(small_model, tmp_path / "m")
    assert list((tmp_path / "m").iterdir()) == []


def test_an_export_runs_without_keras_and_jem_tf(version, model, images, tmp_path):
    np.save(tmp_path / "x.npy", images[0][:3])
    program = f"""
import sys
sys.modules["keras"] = sys.modules["jem_tf"] = None
import numpy as np, tensorflow as tf
loaded = tf.saved_model.load({str(version)!r})
x = tf.constant(np.load({str(tmp_path / "x.npy")!r}))
print(loaded.signatures["energy"](inputs=x)["energy"].numpy().tolist())
loaded.signatures["sample"](labels=tf.constant([1]), seeds=tf.constant([3]))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    energies = json.loads(result.stdout.splitlines()[-1])
    np.testing.assert_allclose(energies, model.energy(images[0][:3]), rtol=1e-5)


def test_examples_are_a_request_with_a_row_of_each_class(version, served, images):
    request = json.loads((version / "assets.extra" / "examples.json").read_text())
    x = np.array(request["instances"], np.float32)
    np.testing.assert_allclose(x, images[0][:2], atol=1e-4)  # of classes 0 and 1
    assert request["signature_name"] in served
    metadata = json.loads((version / "assets.extra" / "jem.json").read_text())
    assert metadata["example_labels"] == [0, 1]


def test_errors_quote_wrong_arguments(model, images, tmp_path):
    with pytest.raises(ValueError, match="Received: 3"):
        jem_tf.export(model, tmp_path, class_names=("a", "b", "c"))
    with pytest.raises(ValueError, match=r"shape \(6, 6, 2\)"):
        two_channels = jem_tf.JEM(backbones.convnet((6, 6, 2), 2, width=4))
        jem_tf.export(two_channels, tmp_path, pixel_range=(0, 1))
    with pytest.raises(ValueError, match="label for every row"):
        jem_tf.export(model, tmp_path, calibrate=images[0])


def test_an_export_does_not_change_the_model(small_model, blobs, tmp_path, monkeypatch):
    small_model.adapt(blobs[0])
    before = small_model.ood_score(blobs[0])
    monkeypatch.setattr(fitted, "unlearned_density", lambda model, x: "not learned yet")
    with pytest.warns(UserWarning, match="not learned yet"):
        jem_tf.export(small_model, tmp_path / "fitted", calibrate=[*blobs], warmup_batches=(1,))
    assert not small_model.detector.fitted
    np.testing.assert_array_equal(small_model.ood_score(blobs[0]), before)
    path = jem_tf.export(small_model, tmp_path / "plain", warmup_batches=(1,))
    assert json.loads((path / "assets.extra" / "jem.json").read_text())["detector"] is None
