"""`jem-tf export` and `inspect`: a run becomes a version with its metadata."""

import json

import pytest

from jem_tf_cli import main


@pytest.fixture(scope="module")
def version(trained, tmp_path_factory):
    """The first export of the finished run."""
    out = tmp_path_factory.mktemp("models") / "small"
    flags = ["--out", str(out), "--sample-steps", "2", "--refine-steps", "1", "--no-examples"]
    assert main(["export", str(trained), *flags]) == 0
    return out / "1"


def test_an_export_says_what_it_was_trained_on_and_measured_with(version):
    metadata = json.loads((version / "assets.extra" / "jem.json").read_text())
    assert metadata["data"] == "small" and metadata["class_names"] == ["0", "1"]
    assert (metadata["sample_steps"], metadata["refine_steps"]) == (2, 1)
    assert metadata["test"]["rows"] == 96
    assert "serving_default_bytes" in metadata["signatures"]
    assert set(metadata["auroc"]) >= {"noise", "patches"}
    for scores in metadata["auroc"].values():
        assert set(scores) == {"fused", "gradient_norm", "log_density", "max_probability"}
        assert all(0 <= value <= 1 for value in scores.values())
    assert not (version / "assets.extra" / "examples.json").exists()


def test_inspect_prints_signatures_and_metadata(version, capsys):
    assert main(["inspect", str(version.parent)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(str(version))
    assert "serving_default: inputs float32[?, 4, 4, 1]" in text
    assert 'class_names: ["0", "1"]' in text


def test_inspect_without_a_model_is_an_error(tmp_path, capsys):
    assert main(["inspect", str(tmp_path)]) == 2
    assert "no SavedModel" in capsys.readouterr().err
