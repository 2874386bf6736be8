"""What `describe` says about an export."""

import pytest

from jem_tf.saved_model.description import describe


def test_signatures_shapes_and_metadata_are_described(version):
    text = describe(version.parent)
    assert text == describe(version)
    assert "serving_default: inputs float32[?, 6, 6, 1]" in text
    assert "probabilities float32[?, 2]" in text
    assert 'class_names: ["dark", "light"]' in text
    assert "temperature: " in text
    assert '"nll"' in text and "reliability" not in text


def test_a_directory_without_a_model_raises(tmp_path):
    with pytest.raises(ValueError, match="no SavedModel"):
        describe(tmp_path)
