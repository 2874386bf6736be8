"""Data sets by name, from files the tests make, and their OOD companions."""

import dataclasses
import shutil

import numpy as np
import pytest
from PIL import Image

from jem_tf import data
from jem_tf.data import ood_sets
from jem_tf.training import recipes
from jem_tf.training import run as training


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def test_digits_are_scaled_split_and_complete(digits):
    x, _ = digits.arrays("train")
    x_validation, y_validation = digits.arrays("validation")
    x_test, y_test = digits.arrays("test")
    assert x.shape == (1293, 8, 8, 1) and x_test.shape == (360, 8, 8, 1)
    assert (x.min(), x.max(), x.dtype) == (-1.0, 1.0, np.float32)
    assert set(np.bincount(y_test)) <= {35, 36, 37}
    assert set(np.bincount(y_validation)) <= {14, 15}
    together = {row.tobytes() for row in np.concatenate([x, x_validation, x_test])}
    assert len(together) >= 1797 - 1  # no row is in two


def test_batches_repeat_with_their_seed_and_differ_between_epochs(digits):
    labels = lambda batches: np.concatenate([y for _, y in batches.as_numpy_iterator()])  # noqa: E731
    one, other = digits.batches("train", 64, seed=1), digits.batches("train", 64, seed=1)
    first = labels(one)
    np.testing.assert_array_equal(first, labels(other))
    assert (first != labels(one)).any()
    plain = labels(digits.batches("train", 64))
    np.testing.assert_array_equal(plain, digits.arrays("train")[1])


def test_augmentation_crops_and_flips(digits):
    plain = next(digits.batches("train", 200).as_numpy_iterator())[0]
    changed = next(digits.batches("train", 200, augment=True).as_numpy_iterator())[0]
    assert changed.shape == plain.shape
    same = (changed == plain).reshape(200, -1).all(1).mean()
    assert same < 0.1  # 1 crop in 81, not flipped
    padded = np.pad(plain[0, ..., 0], 4, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (8, 8)).reshape(-1, 8, 8)
    ours = changed[0, ..., 0]
    assert any((w == ours).all() or (w[:, ::-1] == ours).all() for w in windows)


def test_split_must_exist(digits):
    with pytest.raises(ValueError, match="split='dev'"):
        digits.arrays("dev")


def test_npz_with_and_without_a_test_split(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (50, 6, 6, 1), dtype=np.uint8), np.arange(50) % 2
    np.savez(tmp_path / "one.npz", x=x, y=y)
    one = data.load(str(tmp_path / "one.npz"))
    assert [len(v) for v in (one.train, one.validation, one.test)] == [36, 4, 10]
    assert one.arrays("train")[0].min() >= -1 and one.shape == (6, 6, 1)
    np.savez(tmp_path / "two.npz", x_train=x / 7.0, y_train=y, x_test=x[:5] / 7.0, y_test=y[:5])
    two = data.load(str(tmp_path / "two.npz"))
    np.testing.assert_allclose(two.arrays("test")[0], x[:5] / 7.0, rtol=1e-6)
    assert two.class_names == ("0", "1") and len(two.validation) == 5
    kinds = {
        f"{name}_{kind}": v for kind in data.dataset.SPLITS for name, v in (("x", x), ("y", y))
    }
    np.savez(tmp_path / "three.npz", **kinds)
    assert len(data.load(str(tmp_path / "three.npz")).validation) == 50


def test_few_rows_of_many_classes_can_be_divided(tmp_path):
    np.savez(tmp_path / "few.npz", x=np.ones((12, 3)), y=np.arange(12) // 2 - 1)
    few = data.load(str(tmp_path / "few.npz"))
    assert [len(v) for v in (few.train, few.validation, few.test)] == [8, 1, 3]


def test_npz_with_other_arrays_or_pickles_is_refused(tmp_path):
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
    assert x.shape == (14, 8, 8, 3) and len(loaded.validation) == 2 and len(loaded.test) == 4
    assert x[y == 0].mean() < -0.3 < 0.3 < x[y == 1].mean()


def test_a_folder_of_splits_and_one_of_nothing(folder, tmp_path):
    for split in ("train", "validation", "test"):
        shutil.copytree(folder, tmp_path / "all" / split)
    loaded = data.load(str(tmp_path / "all"))
    assert [len(v) for v in (loaded.train, loaded.validation, loaded.test)] == [20, 20, 20]
    (tmp_path / "empty" / "cats").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"folders \['cats'\]"):
        data.load(str(tmp_path / "empty"))


def test_folders_with_other_classes_to_test_on_are_refused(folder, tmp_path):
    (tmp_path / "both").mkdir()
    folder.rename(tmp_path / "both" / "train")
    (tmp_path / "both" / "test" / "dark").mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(tmp_path / "both" / "test" / "dark" / "0.png")
    with pytest.raises(ValueError, match="must be the same"):
        data.load(str(tmp_path / "both"))


@pytest.fixture
def tfds_dir(tmp_path, monkeypatch):
    """A small MNIST, written by TensorFlow Datasets in its own format."""
    import tensorflow_datasets as tfds

    builder = tfds.builder("mnist", data_dir=str(tmp_path))
    rng = np.random.default_rng(0)

    def rows(count):
        for i in range(count):
            yield i, {"image": rng.integers(0, 256, (28, 28, 1), dtype=np.uint8), "label": i % 10}

    splits = {"train": rows(20), "test": rows(10)}
    monkeypatch.setattr(type(builder), "_split_generators", lambda self, dl_manager: splits)
    builder.download_and_prepare()
    return tmp_path


def test_tensorflow_datasets_by_name(tfds_dir, monkeypatch):
    loaded = data.load("mnist", data_dir=str(tfds_dir))
    x, _ = loaded.arrays("train")
    assert x.shape == (18, 28, 28, 1) and x.min() >= -1 and x.max() <= 1
    assert loaded.class_names == tuple("0123456789")
    assert len(loaded.validation) == 2 and len(loaded.test) == 10
    monkeypatch.setenv("TFDS_DATA_DIR", str(tfds_dir))
    assert data.load("mnist", image_size=8).shape == (8, 8, 1)


def test_a_set_without_a_test_split_is_split(tfds_dir):
    (tfds_dir / "mnist").rename(tfds_dir / "old")
    import tensorflow_datasets as tfds

    builder = tfds.builder("mnist", data_dir=str(tfds_dir))
    rows = ((i, {"image": np.full((28, 28, 1), i, np.uint8), "label": 0}) for i in range(50))
    type(builder)._split_generators = lambda self, dl_manager: {"train": rows}  # restored after
    builder.download_and_prepare()
    loaded = data.load("mnist", data_dir=str(tfds_dir))
    parts = [set(loaded.arrays(s)[0][:, 0, 0, 0]) for s in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [36, 4, 10] and len(set.union(*parts)) == 50


def test_a_set_with_a_test_split_alone_can_be_told_from(tfds_dir):
    (tfds_dir / "mnist").rename(tfds_dir / "old")
    import tensorflow_datasets as tfds

    builder = tfds.builder("mnist", data_dir=str(tfds_dir))
    rows = ((i, {"image": np.full((28, 28, 1), i, np.uint8), "label": 0}) for i in range(9))
    type(builder)._split_generators = lambda self, dl_manager: {"test": rows}  # restored after
    builder.download_and_prepare()
    loaded = data.load("mnist", data_dir=str(tfds_dir))
    assert len(loaded.arrays("test")[0]) == 9 and len(loaded.train) == 0
    with pytest.raises(ValueError, match="data set is empty"):
        training.train(loaded, recipes.get("image"), tfds_dir / "run")


def test_another_set_is_resized_into_a_companion(tfds_dir, digits):
    with pytest.raises(ValueError, match=r"\(28, 28, 1\), digits \(8, 8, 1\): resize"):
        ood_sets.load("mnist", digits, 5, data_dir=str(tfds_dir))
    x = ood_sets.load("mnist", digits, 5, data_dir=str(tfds_dir), resize=True)
    assert x.shape == (5, 8, 8, 1)


def test_companions_have_the_range_of_the_data(digits):
    """Black and white are 0 and 1 here: photographs must not stick out by their numbers."""
    unit = lambda x, y: ((x + 1.0) / 2.0, y)  # noqa: E731
    other = dataclasses.replace(
        digits, train=digits.train.map(unit), test=digits.test.map(unit), pixel_range=(0.0, 1.0)
    )
    same = ood_sets.load("patches", digits, 20)
    np.testing.assert_allclose(ood_sets.load("patches", other, 20), (same + 1) / 2, atol=1e-6)


def test_a_part_of_a_split_is_spread_over_all_of_it(tmp_path):
    """Splits in the order of class are common."""
    y = np.repeat([0, 1, 2, 3], 25)
    x = np.zeros((100, 2, 2, 1), np.uint8)
    np.savez(tmp_path / "s.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    _, some = data.load(str(tmp_path / "s.npz")).arrays("test", 20)
    assert np.bincount(some).tolist() == [5, 5, 5, 5]


def test_vectors_have_no_constant_companion(tmp_path):
    rows = {"x": np.random.default_rng(0).normal(size=(50, 3)), "y": np.arange(50) % 2}
    np.savez(tmp_path / "t.npz", **rows)
    table = data.load(str(tmp_path / "t.npz"))
    assert ood_sets.companions(table) == ("noise", "interpolations")
    with pytest.raises(ValueError, match="no `constant` set of vectors"):
        ood_sets.load("constant", table, 5)


def test_unknown_names_suggest_near_ones(digits):
    with pytest.raises(ValueError, match="'digits'"):
        data.load("digit")
    with pytest.raises(ValueError, match="fashion_mnist"):
        data.load("fashion-mnist")
    with pytest.raises(ValueError, match="'patches'"):
        ood_sets.load("patchs", digits, 5)
    with pytest.raises(ValueError, match="folder of images"):
        data.load("no/such/place")


@pytest.mark.parametrize("name", ood_sets.SYNTHETIC)
def test_companions_have_the_shape_and_range_of_the_set(name, digits):
    x = ood_sets.load(name, digits, 50, seed=1)
    assert x.shape == (50, 8, 8, 1) and x.dtype == np.float32
    assert x.min() >= -1 and x.max() <= 1
    np.testing.assert_array_equal(x, ood_sets.load(name, digits, 50, seed=1))
    assert (x != ood_sets.load(name, digits, 50, seed=2)).any()


def test_companions_are_what_they_are_called(digits):
    large = dataclasses.replace(digits, shape=(200, 200, 3))
    assert ood_sets.load("patches", large, 2).shape == (2, 200, 200, 3)
    flat = lambda name: ood_sets.load(name, digits, 400).reshape(400, -1)  # noqa: E731
    assert np.ptp(flat("constant"), axis=1).max() == 0
    assert abs(flat("noise").std() - 2 / np.sqrt(12)) < 0.02
    neighbours = lambda x: np.corrcoef(x[:, :-1].ravel(), x[:, 1:].ravel())[0, 1]  # noqa: E731
    assert neighbours(flat("patches")) > 0.7 > 0.1 > abs(neighbours(flat("noise")))
    x, _ = digits.arrays("test")
    rows = x.reshape(len(x), -1)
    middle = flat("interpolations")[0]
    first = rows[np.abs(rows - middle).sum(1).argsort()]
    assert any(np.isclose(first[:, None][i] + rows, 2 * middle).all(1).any() for i in range(360))


def test_vectors_have_the_companions_that_make_sense(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "table.npz", x=rng.normal(size=(60, 3)) * [1, 10, 100], y=np.arange(60) % 2)
    table = data.load(str(tmp_path / "table.npz"))
    noise = ood_sets.load("noise", table, 40)
    assert noise[:, 2].std() > 10 * noise[:, 0].std()
    assert ood_sets.load("interpolations", table, 40).shape == (40, 3)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        ood_sets.load("patches", table, 5)
