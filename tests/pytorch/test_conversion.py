"""Models to checkpoints and back, and checkpoints that do not match."""

import numpy as np
import pytest

import jem_tf.pytorch
from jem_tf import backbones
from jem_tf.pytorch import files
from jem_tf_cli import main


def small_model(norm=None):
    return jem_tf.JEM(backbones.wide_resnet((32, 32, 3), 10, 10, 1, norm), seed=1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The checkpoint of a WideResNet-10-1 without normalisation; tests must not change it."""
    path = tmp_path_factory.mktemp("checkpoints") / "small.pt"
    jem_tf.pytorch.save(small_model(), path)
    return path


@pytest.mark.parametrize("norm", [None, "batch", "act"])
def test_a_saved_model_is_loaded_with_the_same_outputs(tmp_path, norm):
    model = small_model(norm)
    x = np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3)).astype(np.float32)
    model.adapt(x)
    jem_tf.pytorch.save(model, tmp_path / "a.pt")
    loaded = jem_tf.pytorch.load(tmp_path / "a.pt", "wrn-10-1")
    logits, expected = (m.backbone(x, training=False).numpy() for m in (loaded, model))
    np.testing.assert_array_equal(logits, expected)
    assert np.ptp(logits) > 0


@pytest.mark.parametrize(
    "arch, parts",
    [
        ("wrn-16-1", ["looks like wrn-10-1", "missing: f.layer1.1.conv1.weight", "and 6 more"]),
        ("wrn-10-2", ["of another shape: f.layer1.0.conv1.weight", "(16, 16, 3, 3) instead of"]),
        ("resnet-50", ["wrn-DEPTH-WIDTH", "resnet-50"]),
        ("wrn-12-1", ["depth=12"]),
    ],
)
def test_another_architecture_raises_an_error_with_the_differences(saved, arch, parts):
    with pytest.raises(ValueError) as error:
        jem_tf.pytorch.load(saved, arch)
    assert all(part in str(error.value) for part in parts), error.value


def test_other_classes_and_norms_raise_errors(saved, tmp_path):
    with pytest.raises(ValueError, match=r"must have 100 classes\. Received: 10 classes"):
        jem_tf.pytorch.load(saved, "wrn-10-1", classes=100)
    with pytest.raises(ValueError, match=r"has no norm.*batch"):
        jem_tf.pytorch.load(saved, "wrn-10-1", norm="batch")
    jem_tf.pytorch.save(small_model("layer"), tmp_path / "layer.pt")
    with pytest.raises(ValueError, match="instance or layer norm"):
        jem_tf.pytorch.load(tmp_path / "layer.pt", "wrn-10-1")
    jem_tf.pytorch.load(tmp_path / "layer.pt", "wrn-10-1", norm="layer")


def test_other_networks_raise_errors(tmp_path):
    with pytest.raises(ValueError, match=r"Only a `backbones.wide_resnet`.*convnet"):
        jem_tf.pytorch.save(jem_tf.JEM(backbones.convnet((8, 8, 1), 2)), tmp_path / "a.pt")
    files.write(tmp_path / "other.pt", {"model_state_dict": {"fc.weight": np.zeros((2, 2), "f4")}})
    with pytest.raises(ValueError, match=r"no class_output\.weight.*fc\.weight"):
        jem_tf.pytorch.load(tmp_path / "other.pt")


def test_the_import_command_makes_a_run_that_can_be_exported_again(saved, tmp_path, capsys):
    out = tmp_path / "run"
    flags = ["--arch", "wrn-10-1", "--out", str(out), "--data-dir", str(tmp_path)]
    assert main(["import", str(saved), *flags]) == 0
    assert "10 classes, no chains" in capsys.readouterr().out
    picture = str(tmp_path / "a.png")
    assert main(["sample", str(out), "--steps", "1", "--count", "2", "--out", picture]) == 0
    assert main(["export", str(out), "--pytorch", str(tmp_path / "back.pt")]) == 0
    first, second = (files.read(p)["model_state_dict"] for p in (saved, tmp_path / "back.pt"))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert main(["import", str(saved), *flags]) == 2
    assert "exists and holds another run" in capsys.readouterr().err
    assert main(["import", str(saved), *flags, "--overwrite", "--dataset", "cifar100"]) == 2
    assert "must have 100 classes. Received: 10 classes" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "none.pt")]) == 2
    assert "There is no file" in capsys.readouterr().err
