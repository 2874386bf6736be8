"""Checkpoint files without PyTorch: written content is read back, anything else is refused."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest

from jem_tf.pytorch import files


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint with the tensors of a small network."""
    rng = np.random.default_rng(0)
    weights = {f"layer{i}.weight": rng.normal(size=(8, 8)).astype(np.float32) for i in range(20)}
    files.write(tmp_path / "small.pt", {"model_state_dict": weights})
    return tmp_path / "small.pt"


def write_zip(path, pickled, storages=()):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for key, content in enumerate(storages):
            archive.writestr(f"archive/data/{key}", content)
    return path


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"])
def test_arrays_of_all_types_are_read_back(tmp_path, dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    value = {"a": {"x": array}, "n": 3, "s": "t", "none": None}
    value |= {"scalar": np.array(1, dtype), "empty": np.zeros((0, 2), dtype)}
    files.write(tmp_path / "a.pt", value)
    content = files.read(tmp_path / "a.pt")
    np.testing.assert_array_equal(content["a"]["x"], array)
    assert content["a"]["x"].dtype == np.dtype(dtype)
    assert (content["n"], content["s"], content["none"]) == (3, "t", None)
    assert content["scalar"].shape == () and content["empty"].shape == (0, 2)


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/never",)


@pytest.mark.parametrize(
    "value, name", [(Evil(), "system"), (np.float64(1), "numpy"), (print, "__builtin__.print")]
)
def test_foreign_classes_are_refused(tmp_path, value, name):
    path = write_zip(tmp_path / "a.pt", pickle.dumps({"model_state_dict": value}, protocol=2))
    with pytest.raises(ValueError, match=f"{name}.*refused"):
        files.read(path)
    assert not os.path.exists("/tmp/never")


def test_foreign_classes_are_refused_in_legacy_files(tmp_path):
    path = tmp_path / "a.pt"
    parts = (1001, {"little_endian": True}, Evil())
    content = b"".join(pickle.dumps(part, protocol=2) for part in parts)
    path.write_bytes(files.LEGACY_MAGIC + content)
    with pytest.raises(ValueError, match="refused"):
        files.read(path)


def test_attributes_that_a_pickle_sets_do_not_outlive_its_reading(tmp_path):
    """A pickle can set attributes of the objects that it builds."""
    pickled = b"\x80\x02ccollections\nOrderedDict\n)R}X\x04\x00\x00\x00evilK\x01sb."
    assert files.read(write_zip(tmp_path / "a.pt", pickled)) == {}
    pickled = b"\x80\x02ccollections\nOrderedDict\n)R."
    assert files.read(write_zip(tmp_path / "b.pt", pickled)) == {}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_raises_an_error_with_its_path(checkpoint, share):
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"small\.pt' is not a complete PyTorch checkpoint"):
        files.read(checkpoint)


@pytest.mark.parametrize("content", [b"hello", b"\x80\x02]q\x00.", bytes(1000)])
def test_other_files_raise_an_error_with_their_first_bytes(tmp_path, content):
    path = tmp_path / "a.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a complete PyTorch checkpoint: it begins with b'"):
        files.read(path)


def pickled_tensor(shape, strides, size, offset=0):
    """The pickle of a tensor with this view of a storage of `size` numbers."""
    parts = [pickle.dumps(v, protocol=2)[2:-1] for v in (offset, shape, strides, False)]
    storage = [pickle.dumps(v, protocol=2)[2:-1] for v in ("storage", "0", "cpu", size)]
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + storage[0]
    head += b"ctorch\nFloatStorage\n" + b"".join(storage[1:]) + b"tQ" + b"".join(parts)
    return head + b"NtR."


def test_tensors_are_views_inside_their_storage(tmp_path):
    numbers = np.arange(4, dtype="<f4").tobytes()
    transposed = pickled_tensor((2, 2), (1, 2), 4)
    array = files.read(write_zip(tmp_path / "a.pt", transposed, [numbers]))
    np.testing.assert_array_equal(array, [[0, 2], [1, 3]])
    for view in (((5,), (1,), 4), ((2,), (4,), 4), ((9, 9), (0, 0), 4), ((2,), (-1,), 4)):
        with pytest.raises(ValueError, match="out of bounds of its storage"):
            files.read(write_zip(tmp_path / "b.pt", pickled_tensor(*view), [numbers]))
    with pytest.raises(ValueError, match="truncated: expected 20 bytes, got 16"):
        files.read(write_zip(tmp_path / "c.pt", pickled_tensor((5,), (1,), 5), [numbers]))


def test_random_changes_of_a_pickle_raise_nothing_but_value_errors(tmp_path, checkpoint):
    """Three random bytes of the pickle are changed, 200 times: it is read, or refused."""
    rng = np.random.default_rng(0)
    with zipfile.ZipFile(io.BytesIO(checkpoint.read_bytes())) as archive:
        pickled = bytearray(archive.read("archive/data.pkl"))
    refused = 0
    for _ in range(200):
        changed = bytearray(pickled)
        for index in rng.integers(len(pickled), size=3):
            changed[index] = rng.integers(256)
        try:
            files.read(write_zip(tmp_path / "b.pt", bytes(changed)))
        except ValueError:
            refused += 1
    assert refused > 100
