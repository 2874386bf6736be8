"""SavedModels with operations of TensorFlow Text."""

import sys

import pytest
import tensorflow as tf

from jem_tf.saved_model.loading import load_saved_model


def test_an_unknown_operation_names_the_package(tmp_path, monkeypatch):
    module = tf.Module()
    module.call = tf.function(tf.nn.relu, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path))
    file = tmp_path / "saved_model.pb"
    file.write_bytes(file.read_bytes().replace(b"\x12\x04Relu", b"\x12\x04Xelu"))
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)  # not installed
    with pytest.raises(ValueError, match=r"operation Xelu.*pip install 'jem_tf\[text\]'"):
        load_saved_model(tmp_path)


def test_other_errors_stay(tmp_path):
    with pytest.raises(OSError, match="does not exist"):
        load_saved_model(tmp_path)
