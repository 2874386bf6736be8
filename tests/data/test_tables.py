"""CSV and Parquet tables: to train on, with labels, missing values and categories."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jem_tf import data
from jem_tf.data.tables import count_rows, is_images, read_table


@pytest.fixture
def rows():
    """60 rows with two inputs, a number of the plant, and a species by name."""
    rng = np.random.default_rng(0)
    species = np.array(["setosa", "virginica", "alba"])[np.arange(60) % 3]
    width, length = rng.normal(size=(2, 60)).astype(np.float32)
    return {"plant": np.arange(60), "width": width, "length": length, "species": species}


@pytest.fixture(params=["csv", "parquet"])
def table(rows, tmp_path, request):
    path = tmp_path / f"irises.{request.param}"
    if request.param == "parquet":
        pq.write_table(pa.table(rows), path, row_group_size=17)
    else:
        lines = [",".join(map(str, values)) for values in zip(*rows.values())]
        path.write_text("\n".join([",".join(rows), *lines]) + "\n")
    return path


def test_a_table_with_a_label_column_is_split_and_has_names(table, rows):
    loaded = data.load(str(table), label="species", columns=("length", "width"))
    assert (loaded.name, loaded.class_names) == ("irises", ("alba", "setosa", "virginica"))
    assert [len(part) for part in (loaded.train, loaded.validation, loaded.test)] == [43, 5, 12]
    known = {
        (np.float32(length), np.float32(width)): name
        for width, length, name in zip(rows["width"], rows["length"], rows["species"])
    }
    for x, y in zip(*loaded.arrays("train")):
        assert known[tuple(x)] == loaded.class_names[y]


def test_all_other_columns_are_inputs_and_a_missing_column_is_named(table):
    assert data.load(str(table), label="species").shape == (3,)
    with pytest.raises(ValueError, match=r"no column 'label'. Its columns: plant, width"):
        data.load(str(table))
    with pytest.raises(ValueError, match="cannot resize"):
        data.load(str(table), image_size=8, label="species")


def test_rows_are_read_from_any_row_on(table, rows):
    for start in (0, 16, 17, 40, 59):
        batches = list(read_table(table, row_id="plant", columns=["width"], start=start))
        assert [int(i) for b in batches for i in b.ids] == list(range(start, 60))
        x = np.concatenate([b.x[:, 0] for b in batches])
        np.testing.assert_allclose(x, rows["width"][start:], rtol=1e-6)


def test_numbers_as_labels_are_in_their_order(tmp_path):
    lines = [f"{i},{(i % 3) * 5 + 1}" for i in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["a,label", *lines]))
    assert data.load(str(tmp_path / "t.csv")).class_names == ("1", "6", "11")


def test_missing_values_are_named_counted_and_skipped_or_refused(tmp_path):
    lines = [f"{i},{-i},{i % 2}" for i in range(50)]
    lines[3], lines[7], lines[9] = "3,,1", "7,x,1", "9,-9,"
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b,label", *lines]))
    message = (
        r"3 of 50 rows of '.*t.csv' are not valid: row 3 \(column 'b' is missing\); row 7 "
        r"\(column 'b' is 'x', not a finite number\); row 9 \(no label\)"
    )
    with pytest.warns(UserWarning, match=f"{message}. They are skipped; --strict"):
        loaded = data.load(str(path))
    assert sum(len(part) for part in (loaded.train, loaded.validation, loaded.test)) == 47
    with pytest.raises(ValueError, match=message):
        data.load(str(path), strict=True)


def test_a_column_of_categories_is_refused_with_the_way_out(tmp_path):
    (tmp_path / "t.csv").write_text("colour,label\n" + "red,1\nblue,0\n" * 10)
    with pytest.raises(ValueError, match=r"20 of 20 .* 'red'.*Categories must be encoded"):
        data.load(str(tmp_path / "t.csv"))


def test_lines_that_are_no_rows_are_errors_in_their_place(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\n1\n2,"x\n"\n\n3,4,5\n\xff,6\n7,8\n9\n')
    batches = list(read_table(path, row_id="b", columns=["a"], batch_size=4))
    assert [len(batch.x) for batch in batches] == [4, 2] and count_rows(path) == 6
    errors = [batch.errors.get(i) for batch in batches for i in range(len(batch.x))]
    assert errors == [
        "the line has 1 cells, and the header 2",
        None,
        "the line has 3 cells, and the header 2",
        "column 'a' is '\ufffd', not a finite number",
        None,
        "the line has 1 cells, and the header 2",
    ]
    assert [i for batch in batches for i in batch.ids] == [None, "x\n", None, "6", "8", None]
    (last,) = read_table(path, start=4)
    assert last.x[0].tolist() == [7, 8] and list(last.errors) == [1]


def test_lines_that_are_no_rows_in_many_blocks(tmp_path):
    """A block is 1 MB; the file has three, and an invalid line at each multiple of 1000."""
    lines = ["only" if i % 1000 == 0 else f"{i:06d},{'0' * 20}" for i in range(100_000)]
    (tmp_path / "t.csv").write_text("\n".join(["a,b", *lines]))
    rows, invalid = 0, []
    for batch in read_table(tmp_path / "t.csv", batch_size=999):
        valid = [i for i in range(len(batch.x)) if i not in batch.errors]
        np.testing.assert_array_equal(batch.x[valid, 0], np.array(valid) + rows)
        invalid += [rows + i for i in sorted(batch.errors)]
        rows += len(batch.x)
    assert rows == 100_000 and invalid == list(range(0, 100_000, 1000))


def test_images_are_a_single_column_of_bytes(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {"a": [1.0], "png": pa.array([b"1"], pa.large_binary()), "kind": ["u"]}
    pq.write_table(pa.table(columns), path)
    assert is_images(path, columns=["png"]) and is_images(path, "kind", "a")
    assert not is_images(path) and not is_images(path, "kind", columns=["a"])
    (batch,) = read_table(path, "kind", columns=["a"])
    assert batch.x.tolist() == [[1.0]]
    assert next(read_table(path, columns=["png"])).x == [b"1"]
    with pytest.raises(ValueError, match=r"'png' holds large_binary.*Categories must be encoded"):
        next(read_table(path, "kind"))


def test_text_of_pandas_and_dictionaries_are_read_as_text(tmp_path):
    path = tmp_path / "t.parquet"
    columns = {
        "a": pa.array(["1", "2", "x"], pa.large_string()),
        "b": pa.array(["4", "red", "4"]).dictionary_encode(),
        "c": pa.array([5.0, 6.0, 6.0]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), path)
    (batch,) = read_table(path)
    assert batch.x[0].tolist() == [1, 4, 5]
    assert batch.errors == {
        1: "column 'b' is 'red', not a finite number",
        2: "column 'a' is 'x', not a finite number",
    }


def test_files_that_are_no_tables_raise(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"no table")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("a,label\n")
    for name in ("t.parquet", "empty.csv", "missing.csv"):
        with pytest.raises(ValueError, match="Cannot read"):
            data.load(str(tmp_path / name))
    with pytest.raises(ValueError, match="has no rows"):
        data.load(str(tmp_path / "header.csv"))
