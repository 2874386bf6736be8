"""Rows to score: sources, their order, and reading from the middle."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from jem_tf.data import sources
from jem_tf.data.rows import open_rows


def read(rows, start=0, size=7):
    batches = list(rows.batches(start, size))
    assert all(len(batch.ids) <= size for batch in batches)
    return [i for batch in batches for i in batch.ids], [x for batch in batches for x in batch.x]


def test_an_npz_file_is_read_in_pieces(tmp_path):
    x = np.random.default_rng(0).normal(size=(50, 3, 2)).astype(np.float32)
    np.savez_compressed(tmp_path / "a.npz", x_train=x, x_test=x[:9], y_test=np.arange(9))
    rows = open_rows(tmp_path / "a.npz", split="train")
    ids, values = read(rows, start=11)
    assert len(rows) == 50 and ids == [str(i) for i in range(11, 50)]
    np.testing.assert_array_equal(values, x[11:])
    assert next(open_rows(tmp_path / "a.npz").batches(4, 2)).labels == [4, 5]
    with pytest.raises(ValueError, match=r"must hold x, or x_validation"):
        open_rows(tmp_path / "a.npz", split="validation")


def test_arrays_that_cannot_be_read_in_pieces_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.asfortranarray(np.ones((5, 4, 3))))
    with pytest.raises(ValueError, match="C order"):
        open_rows(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="Cannot read"):
        open_rows(tmp_path / "b.npz")


def test_files_of_folders_and_lists(tmp_path):
    for name in ("b/2.png", "b/1.JPG", "a.webp", "notes.txt"):
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).write_bytes(name.encode())
    ids, contents = read(open_rows(tmp_path / "set"))
    assert [i.removeprefix(f"{tmp_path}/set/") for i in ids] == ["a.webp", "b/1.JPG", "b/2.png"]
    assert contents == [b"a.webp", b"b/1.JPG", b"b/2.png"]
    (tmp_path / "list.txt").write_text(f"{ids[2]}\n\n{ids[0]}\n{tmp_path}/missing.png\n")
    listed = open_rows(tmp_path / "list.txt")
    assert read(listed) == (
        [ids[2], ids[0], f"{tmp_path}/missing.png"],
        [b"b/2.png", b"a.webp", b""],
    )
    assert next(listed.batches()).labels[0] == "b" and listed.is_images


def test_a_data_set_by_name_has_names_as_labels():
    rows = open_rows("digits")
    batch = next(rows.batches(350, 100))
    assert len(rows) == 360 and batch.ids[0] == "350" and batch.x.shape == (10, 8, 8, 1)
    assert set(batch.labels) <= set("0123456789")
    with pytest.raises(ValueError, match=r"Received: split='tset'"):
        open_rows("digits", split="tset")


def test_a_set_of_tensorflow_datasets_has_the_size_of_the_model(mnist_directory):
    rows = open_rows("mnist", data_dir=mnist_directory)
    assert rows.pixel_range == (-1, 1)
    assert next(rows.batches()).x.shape == (10, 28, 28, 1)
    assert rows.resized((28, 28, 1)) is rows and rows.resized(None) is rows
    assert next(rows.resized((12, 12, 1)).batches()).x.shape == (10, 12, 12, 1)


def test_images_that_differ_in_size_can_be_opened(mnist_directory, monkeypatch):
    load = sources.load

    def mixed(name, data_dir, image_size, **options):
        if image_size is None:
            raise ValueError("The images differ in size: give `image_size`.")
        return load(name, data_dir, image_size, **options)

    monkeypatch.setattr(sources, "load", mixed)
    rows = open_rows("mnist", data_dir=mnist_directory)
    assert len(rows) == 10 and next(rows.resized((9, 9, 1)).batches()).x.shape == (10, 9, 9, 1)


def test_records_with_images_and_labels(tmp_path):
    file = tmp_path / "a.png"
    Image.new("L", (4, 4)).save(file)
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for name in (b"cat", b"dog"):
            value = {"image/encoded": file.read_bytes(), "label": name}
            features = {
                key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[v]))
                for key, v in value.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    rows = open_rows(tmp_path / "a.tfrecord")
    assert len(rows) == 2 and rows.is_images
    assert next(rows.batches(1)).labels == ["dog"]
    (tmp_path / "b.tfrecord").write_bytes(b"no records" * 10)
    with pytest.raises(ValueError, match="Cannot read"):
        open_rows(tmp_path / "b.tfrecord")


def test_a_record_that_is_not_like_the_others_is_an_error_of_its_row(tmp_path):
    def example(count):
        value = tf.train.Feature(float_list=tf.train.FloatList(value=range(count)))
        features = tf.train.Features(feature={"x": value} if count else {})
        return tf.train.Example(features=features).SerializeToString()

    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for record in (b"\xff\xff", example(3), example(5), example(3), example(0), example(3)):
            writer.write(record)
    batch = next(open_rows(tmp_path / "a.tfrecord").batches())
    assert batch.errors == {
        0: "no tf.train.Example",
        2: "5 values; other records have 3",
        4: "no 'x'",
    }
    for row in (1, 3, 5):
        assert batch.x[row].tolist() == [0, 1, 2]


def test_several_folders_and_files_are_image_files(tmp_path):
    for name in ("a/1.png", "b/2.png", "c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    files = [tmp_path / name for name in ("b", "c.png", "a")]
    names = [str(tmp_path / name) for name in ("b/2.png", "c.png", "a/1.png")]
    assert open_rows(files).paths == names
    (tmp_path / "t.csv").write_text("a\n1\n")
    for other in (tmp_path / "t.csv", tmp_path / "missing", "digits"):
        with pytest.raises(ValueError, match=f"one at a time. Received: '{other}'"):
            open_rows([tmp_path / "c.png", other])


def test_rows_are_selected_in_one_pass(tmp_path, monkeypatch):
    x = np.arange(2000.0).reshape(1000, 2)
    np.savez(tmp_path / "a.npz", x=x)
    rows, calls = open_rows(tmp_path / "a.npz"), []
    read = type(rows).batches
    monkeypatch.setattr(type(rows), "batches", lambda *a: calls.append(a) or read(*a))
    numbers = [3, 4, 300, 999]
    chosen = dict(rows.select(numbers))
    assert list(chosen) == numbers and len(calls) == 1
    np.testing.assert_array_equal(list(chosen.values()), x[numbers])
    assert list(rows.select([])) == []


def test_other_data_is_refused(tmp_path):
    (tmp_path / "a.xlsx").write_text("")
    with pytest.raises(ValueError, match=r"or the name of a data set. Received: .*xlsx"):
        open_rows(tmp_path / "a.xlsx")
