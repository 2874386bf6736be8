"""Checkpoint files without PyTorch: what is written is read, what is no checkpoint is refused."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest

import jem_tf.pytorch
from jem_tf import backbones
from jem_tf.cli import main
from jem_tf.pytorch import files


def small(classes=10, norm=None, depth=10, width=1):
    return jem_tf.JEM(backbones.wide_resnet((32, 32, 3), classes, depth, width, norm), seed=1)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "small.pt"
    jem_tf.pytorch.save(small(), path)
    return path


def zipped(path, pickled, storages=()):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for key, content in enumerate(storages):
            archive.writestr(f"archive/data/{key}", content)
    return path


@pytest.mark.parametrize("kind", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"])
def test_arrays_of_all_kinds_come_back(tmp_path, kind):
    value = {"a": {"x": np.arange(6).reshape(2, 3).astype(kind)}, "n": 3, "s": "t", "none": None}
    value |= {"scalar": np.array(1, kind), "empty": np.zeros((0, 2), kind)}
    files.write(tmp_path / "a.pt", value)
    found = files.read(tmp_path / "a.pt")
    np.testing.assert_array_equal(found["a"]["x"], value["a"]["x"])
    assert found["a"]["x"].dtype == np.dtype(kind)
    assert (found["n"], found["s"], found["none"]) == (3, "t", None)
    assert found["scalar"].shape == () and found["empty"].shape == (0, 2)


@pytest.mark.parametrize("norm", [None, "batch", "act"])
def test_a_model_comes_back(tmp_path, norm):
    model = small(norm=norm)
    x = np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3)).astype(np.float32)
    model.adapt(x)
    jem_tf.pytorch.save(model, tmp_path / "a.pt")
    again = jem_tf.pytorch.load(tmp_path / "a.pt", "wrn-10-1")
    np.testing.assert_array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/never",)


@pytest.mark.parametrize(
    "value, named", [(Evil(), "system"), (np.float64(1), "numpy"), (print, "__builtin__.print")]
)
def test_foreign_classes_are_refused(tmp_path, value, named):
    path = zipped(tmp_path / "a.pt", pickle.dumps({"model_state_dict": value}, protocol=2))
    with pytest.raises(ValueError, match=f"{named}.*refused"):
        files.read(path)
    assert not os.path.exists("/tmp/never")


def test_so_they_are_in_the_older_files(tmp_path):
    path = tmp_path / "a.pt"
    parts = (1001, {"little_endian": True}, Evil())
    path.write_bytes(files.MAGIC + b"".join(pickle.dumps(part, protocol=2) for part in parts))
    with pytest.raises(ValueError, match="refused"):
        files.read(path)


def test_attributes_of_what_may_be_used_stay_as_they_are(tmp_path):
    """A pickle can also set attributes; here only on objects of this one reading."""
    head = b"\x80\x02ccollections\nOrderedDict\n)R}X\x04\x00\x00\x00evilK\x01sb."
    assert files.read(zipped(tmp_path / "a.pt", head)) == {}
    assert files.read(zipped(tmp_path / "b.pt", b"\x80\x02ccollections\nOrderedDict\n)R.")) == {}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_named(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"small\.pt' is not a whole PyTorch checkpoint"):
        files.read(saved)


@pytest.mark.parametrize("content", [b"hello", b"\x80\x02]q\x00.", bytes(1000)])
def test_what_is_no_checkpoint_is_named(tmp_path, content):
    path = tmp_path / "a.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a whole PyTorch checkpoint: it begins with b'"):
        files.read(path)


def described(shape, strides, size, offset=0):
    """A pickled tensor that says these things of its storage."""
    parts = [pickle.dumps(v, protocol=2)[2:-1] for v in (offset, shape, strides, False)]
    storage = [pickle.dumps(v, protocol=2)[2:-1] for v in ("storage", "0", "cpu", size)]
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + storage[0]
    head += b"ctorch\nFloatStorage\n" + b"".join(storage[1:]) + b"tQ" + b"".join(parts)
    return head + b"NtR."


def test_tensors_stay_inside_their_storage(tmp_path):
    four = np.arange(4, dtype="<f4").tobytes()
    good = files.read(zipped(tmp_path / "a.pt", described((2, 2), (1, 2), 4), [four]))
    np.testing.assert_array_equal(good, [[0, 2], [1, 3]])  # a transposed view
    for wrong in (((5,), (1,), 4), ((2,), (4,), 4), ((9, 9), (0, 0), 4), ((2,), (-1,), 4)):
        with pytest.raises(ValueError, match="reaches out"):
            files.read(zipped(tmp_path / "b.pt", described(*wrong), [four]))
    with pytest.raises(ValueError, match="bytes it should have"):
        files.read(zipped(tmp_path / "c.pt", described((5,), (1,), 5), [four]))


@pytest.mark.parametrize(
    "arch, said",
    [
        ("wrn-16-1", ["looks like wrn-10-1", "missing: f.layer1.1.conv1.weight", "and 6 more"]),
        ("wrn-10-2", ["of another shape: f.layer1.0.conv1.weight", "(16, 16, 3, 3) instead of"]),
        ("resnet-50", ["wrn-DEPTH-WIDTH", "resnet-50"]),
        ("wrn-12-1", ["depth=12"]),
    ],
)
def test_another_architecture_is_told_apart(saved, arch, said):
    with pytest.raises(ValueError) as error:
        jem_tf.pytorch.load(saved, arch)
    assert all(part in str(error.value) for part in said), error.value


def test_wrong_classes_norms_and_networks(saved, tmp_path):
    with pytest.raises(ValueError, match="knows 10 classes, and 100"):
        jem_tf.pytorch.load(saved, "wrn-10-1", classes=100)
    with pytest.raises(ValueError, match=r"has no norm.*batch"):
        jem_tf.pytorch.load(saved, "wrn-10-1", norm="batch")
    jem_tf.pytorch.save(small(norm="layer"), tmp_path / "layer.pt")
    with pytest.raises(ValueError, match="look alike"):
        jem_tf.pytorch.load(tmp_path / "layer.pt", "wrn-10-1")
    jem_tf.pytorch.load(tmp_path / "layer.pt", "wrn-10-1", norm="layer")
    with pytest.raises(ValueError, match=r"Only a `backbones.wide_resnet`.*convnet"):
        jem_tf.pytorch.save(jem_tf.JEM(backbones.convnet((8, 8, 1), 2)), tmp_path / "a.pt")
    files.write(tmp_path / "other.pt", {"model_state_dict": {"fc.weight": np.zeros((2, 2), "f4")}})
    with pytest.raises(ValueError, match=r"no class_output\.weight.*fc\.weight"):
        jem_tf.pytorch.load(tmp_path / "other.pt")


def test_the_command_makes_a_run_of_it(saved, tmp_path, capsys):
    out = tmp_path / "run"
    flags = ["--arch", "wrn-10-1", "--out", str(out), "--data-dir", str(tmp_path)]
    assert main(["import", str(saved), *flags]) == 0
    assert "10 classes, no chains" in capsys.readouterr().out
    assert main(["sample", str(out), "--steps", "1", "--out", str(tmp_path / "a.png")]) == 0
    assert main(["export", str(out), "--pytorch", str(tmp_path / "back.pt")]) == 0
    first, second = (files.read(p)["model_state_dict"] for p in (saved, tmp_path / "back.pt"))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert main(["import", str(saved), *flags]) == 2
    assert "exists and holds another run" in capsys.readouterr().err
    assert main(["import", str(saved), *flags, "--overwrite", "--dataset", "cifar100"]) == 2
    assert "knows 10 classes, and 100" in capsys.readouterr().err
    assert main(["import", str(tmp_path / "none.pt")]) == 2
    assert "There is no file" in capsys.readouterr().err


def test_a_stream_of_garbage_is_never_more_than_an_error(tmp_path, saved):
    """Bytes changed at random places, seed 0: a reading, or a `ValueError`."""
    rng, content = np.random.default_rng(0), bytearray(saved.read_bytes())
    with zipfile.ZipFile(io.BytesIO(bytes(content))) as archive:
        head = bytearray(archive.read("archive/data.pkl"))
    for _ in range(200):
        broken = bytearray(head)
        for place in rng.integers(len(head), size=3):
            broken[place] = rng.integers(256)
        try:
            files.read(zipped(tmp_path / "b.pt", bytes(broken)))
        except ValueError:
            continue
