"""Data sets by name: digits, files, folders and TensorFlow Datasets."""

import shutil

import numpy as np
import pytest
from PIL import Image

from jem_tf import data
from jem_tf.data.dataset import SPLITS


def sizes(dataset):
    return [len(rows) for rows in (dataset.train, dataset.validation, dataset.test)]


def test_digits_are_scaled_split_and_complete(digits):
    x, _ = digits.arrays("train")
    x_validation, y_validation = digits.arrays("validation")
    x_test, y_test = digits.arrays("test")
    assert x.shape == (1293, 8, 8, 1) and x_test.shape == (360, 8, 8, 1)
    assert (x.min(), x.max(), x.dtype) == (-1.0, 1.0, np.float32)
    assert set(np.bincount(y_test)) <= {35, 36, 37}
    assert set(np.bincount(y_validation)) <= {14, 15}
    different = {row.tobytes() for row in np.concatenate([x, x_validation, x_test])}
    assert len(different) >= 1797 - 1  # no row is in two splits


def test_npz_with_and_without_a_test_split(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (50, 6, 6, 1), dtype=np.uint8), np.arange(50) % 2
    np.savez(tmp_path / "one.npz", x=x, y=y)
    one = data.load(str(tmp_path / "one.npz"))
    assert sizes(one) == [36, 4, 10]
    assert one.arrays("train")[0].min() >= -1 and one.shape == (6, 6, 1)
    np.savez(tmp_path / "two.npz", x_train=x / 7.0, y_train=y, x_test=x[:5] / 7.0, y_test=y[:5])
    two = data.load(str(tmp_path / "two.npz"))
    np.testing.assert_allclose(two.arrays("test")[0], x[:5] / 7.0, rtol=1e-6)
    assert two.class_names == ("0", "1") and len(two.validation) == 5
    arrays = {f"{name}_{split}": v for split in SPLITS for name, v in (("x", x), ("y", y))}
    np.savez(tmp_path / "three.npz", **arrays)
    assert len(data.load(str(tmp_path / "three.npz")).validation) == 50


def test_few_rows_of_many_classes_can_be_split(tmp_path):
    np.savez(tmp_path / "few.npz", x=np.ones((12, 3)), y=np.arange(12) // 2 - 1)
    assert sizes(data.load(str(tmp_path / "few.npz"))) == [8, 1, 3]


@pytest.mark.parametrize("form", [np.float32, bool, "column", "one-hot"])
def test_npz_labels_may_be_any_numbers_that_keras_takes(form, tmp_path):
    y = np.arange(40) % 2
    forms = {"column": y[:, None], "one-hot": np.eye(2)[y]}
    np.savez(tmp_path / "a.npz", x=y[:, None], y=forms[form] if form in forms else y.astype(form))
    loaded = data.load(str(tmp_path / "a.npz"))
    assert loaded.class_names == ("0", "1")
    x, labels = loaded.arrays("train")
    np.testing.assert_array_equal(x[:, 0], labels)
    assert labels.dtype == np.int64


def test_npz_labels_beyond_the_class_names_raise(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((9, 2)), y=np.arange(9) % 3, class_names=["u", "v"])
    with pytest.raises(ValueError, match=r"a.npz': .*between 0 and 1.*Received: 2 in row 2"):
        data.load(str(tmp_path / "a.npz"))


def test_npz_with_other_arrays_or_pickles_raises(tmp_path):
    np.savez(tmp_path / "other.npz", images=np.zeros(3))
    with pytest.raises(ValueError, match=r"Received: \['images'\]"):
        data.load(str(tmp_path / "other.npz"))
    np.savez(tmp_path / "objects.npz", x=np.array([{}, []], dtype=object), y=np.zeros(2))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        data.load(str(tmp_path / "objects.npz"))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no zip file")
    for name in ("missing.npz", "broken.npz"):
        with pytest.raises(ValueError, match="Cannot read"):
            data.load(str(tmp_path / name))


@pytest.fixture
def folder(tmp_path):
    """Ten dark and ten light pictures, in a folder for each class."""
    rng = np.random.default_rng(0)
    for name, low in (("dark", 0), ("light", 156)):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(low, low + 100, (9, 9, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "set" / name / f"{i}.png")
    return tmp_path / "set"


def test_a_folder_of_images_by_class(folder):
    loaded = data.load(str(folder), image_size=8)
    x, y = loaded.arrays("train")
    assert loaded.class_names == ("dark", "light")
    assert x.shape == (14, 8, 8, 3) and sizes(loaded) == [14, 2, 4]
    assert x[y == 0].mean() < -0.3 < 0.3 < x[y == 1].mean()


def test_a_folder_of_splits_and_one_without_images(folder, tmp_path):
    for split in SPLITS:
        shutil.copytree(folder, tmp_path / "all" / split)
    assert sizes(data.load(str(tmp_path / "all"))) == [20, 20, 20]
    (tmp_path / "empty" / "cats").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"folders \['cats'\]"):
        data.load(str(tmp_path / "empty"))


def test_splits_with_other_classes_raise(folder, tmp_path):
    (tmp_path / "both").mkdir()
    folder.rename(tmp_path / "both" / "train")
    (tmp_path / "both" / "test" / "dark").mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(tmp_path / "both" / "test" / "dark" / "0.png")
    with pytest.raises(ValueError, match="must be the same"):
        data.load(str(tmp_path / "both"))


def test_tensorflow_datasets_by_name(mnist_directory, monkeypatch):
    loaded = data.load("mnist", data_dir=mnist_directory)
    x, _ = loaded.arrays("train")
    assert x.shape == (18, 28, 28, 1) and x.min() >= -1 and x.max() <= 1
    assert loaded.class_names == tuple("0123456789")
    assert len(loaded.validation) == 2 and len(loaded.test) == 10
    monkeypatch.setenv("TFDS_DATA_DIR", mnist_directory)
    assert data.load("mnist", image_size=8).shape == (8, 8, 1)
    assert data.class_names("mnist") == loaded.class_names


def test_a_set_without_a_test_split_is_split(write_mnist):
    loaded = data.load("mnist", data_dir=write_mnist(train=50))
    parts = [set(loaded.arrays(split)[0][:, 0, 0, 0]) for split in SPLITS]
    assert [len(part) for part in parts] == [36, 4, 10] and len(set.union(*parts)) == 50


def test_a_set_with_a_test_split_only_has_no_training_rows(write_mnist):
    loaded = data.load("mnist", data_dir=write_mnist(test=9))
    assert len(loaded.arrays("test")[0]) == 9 and len(loaded.train) == 0


def test_unknown_names_suggest_similar_ones():
    with pytest.raises(ValueError, match="'digits'"):
        data.load("digit")
    with pytest.raises(ValueError, match="fashion_mnist"):
        data.load("fashion-mnist")
    with pytest.raises(ValueError, match="folder of images"):
        data.load("no/such/place")


def test_paths_that_are_missing_or_of_another_kind_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"no file or folder .*missing"):
        data.load(str(tmp_path / "missing"))
    (tmp_path / "notes.doc").write_text("")
    with pytest.raises(ValueError, match=r"\.parquet\. Received: .*notes\.doc"):
        data.load(str(tmp_path / "notes.doc"))
