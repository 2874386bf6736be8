"""`jem_tf.score`: every source, errors by row, and labels."""

import json

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from pyarrow import csv

import jem_tf
from jem_tf.scoring import batches, scoring
from jem_tf.training import DataSource, RunSettings, recipes
from scoring.tables import read, values


def test_scores_are_those_of_the_export(export, npz, images, tmp_path, version):
    summary = jem_tf.score(export, npz, tmp_path / "scores.parquet", part_rows=64, batch_size=50)
    rows = read(summary.out)
    served = tf.saved_model.load(str(version)).signatures["serving_default"]
    answers = {k: v.numpy() for k, v in served(inputs=tf.constant(images[0])).items()}
    assert [row["id"] for row in rows] == [str(i) for i in range(200)]
    assert [row["class"].encode() for row in rows] == list(answers["class_name"])
    np.testing.assert_allclose(
        values(rows, "probability"), answers["probabilities"].max(1), rtol=1e-5
    )
    for name in ("energy", "ood_score"):
        np.testing.assert_allclose(values(rows, name), answers[name], rtol=1e-4)
    np.testing.assert_allclose(values(rows, "p_value"), answers["percentile"] / 100, rtol=1e-5)
    assert [row["is_ood"] for row in rows] == list(answers["is_ood"])
    assert [row["label"] for row in rows] == [("dark", "light")[i] for i in images[1]]
    assert all(row["error"] is None for row in rows)
    assert (summary.rows, summary.errors) == (200, 0)
    assert summary.out_of_distribution == sum(row["is_ood"] for row in rows)
    assert not (tmp_path / "scores.parquet.parts").exists()


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_other_formats_have_the_same_rows(suffix, export, npz, tmp_path):
    expected = read(jem_tf.score(export, npz, tmp_path / "a.parquet").out)
    out = jem_tf.score(export, npz, tmp_path / f"a.{suffix}", part_rows=64).out
    if suffix == "csv":
        rows = csv.read_csv(out).to_pylist()
    else:
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 200 and list(rows[0]) == list(expected[0])
    for name in ("probability", "energy", "ood_score", "p_value"):
        np.testing.assert_allclose(values(rows, name), values(expected, name), rtol=1e-5)
    assert [row["class"] for row in rows] == [row["class"] for row in expected]


def test_a_folder_of_mixed_formats_and_sizes_and_its_broken_files(export, photos, tmp_path):
    """A broken file is a row with its error; the others have the scores that they have alone."""
    dark = sorted((photos / "deep" / "dark").iterdir())
    dark[0].write_bytes(b"not an image")
    dark[1].write_bytes(dark[1].read_bytes()[:40])
    (photos / "notes.md").write_text("not scored")
    summary = jem_tf.score(export, photos, tmp_path / "scores.parquet", batch_size=16)
    rows = {row["id"]: row for row in read(summary.out)}
    assert list(rows) == sorted(rows) and len(rows) == 40 and summary.errors == 2
    broken = {path: row["error"] for path, row in rows.items() if row["error"]}
    assert set(broken) == {str(dark[0]), str(dark[1])}
    assert broken[str(dark[0])] == "not an image file"
    assert all(rows[path]["class"] is None and rows[path]["energy"] is None for path in broken)
    assert rows[str(dark[2])]["label"] == "dark"
    alone = read(jem_tf.score(export, [dark[2], dark[5]], tmp_path / "two.parquet").out)
    for row in alone:
        assert row["energy"] == pytest.approx(rows[row["id"]]["energy"], rel=1e-4)


def test_one_per_cent_of_corrupt_files_is_one_per_cent_of_errors(export, photos, tmp_path):
    source = sorted(photos.rglob("*.png"))[0].read_bytes()
    many = tmp_path / "many"
    many.mkdir()
    for i in range(1000):
        (many / f"{i:04d}.png").write_bytes(source[:-30] if i % 100 == 7 else source)
    summary = jem_tf.score(export, many, tmp_path / "scores.parquet")
    assert (summary.rows, summary.errors) == (1000, 10)
    failed = [row["id"] for row in read(summary.out) if row["error"]]
    assert failed == [str(many / f"{i:04d}.png") for i in range(7, 1000, 100)]


def test_rows_with_values_that_are_not_finite_are_errors(export, images, tmp_path):
    x = images[0].copy()
    x[5, 0, 0] = np.nan
    rows = read(jem_tf.score(export, x, tmp_path / "scores.parquet").out)
    assert [i for i, row in enumerate(rows) if row["error"]] == [5]
    assert rows[5]["error"] == "a value is not finite"


def test_tables_and_records(export, images, tmp_path):
    x, y = images
    flat = x.reshape(200, -1)
    table = pa.table(
        {"plant": [f"p{i}" for i in range(200)]} | dict(zip(map(str, range(36)), flat.T))
    )
    table = table.append_column("kind", pa.array(np.array(["dark", "light"])[y]))
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=30)
    csv.write_csv(table, tmp_path / "t.csv")
    with tf.io.TFRecordWriter(str(tmp_path / "t.tfrecord")) as writer:
        for row, label in zip(flat, y):
            floats = tf.train.Feature(float_list=tf.train.FloatList(value=row))
            number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
            features = tf.train.Features(feature={"x": floats, "label": number})
            writer.write(tf.train.Example(features=features).SerializeToString())
    expected = read(jem_tf.score(export, x, tmp_path / "expected.parquet").out)
    for name in ("t.parquet", "t.csv", "t.tfrecord"):
        columns = {} if name == "t.tfrecord" else {"label": "kind", "row_id": "plant"}
        out = tmp_path / f"{name}.scores.parquet"
        rows = read(jem_tf.score(export, tmp_path / name, out, part_rows=70, **columns).out)
        np.testing.assert_allclose(values(rows, "energy"), values(expected, "energy"), rtol=1e-3)
        assert [row["label"] for row in rows] == [("dark", "light")[i] for i in y]
        assert rows[3]["id"] == ("p3" if columns else "3")


def test_cells_that_are_missing_or_no_numbers_are_errors_of_their_rows(tmp_path, blobs):
    backbone = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    (tmp_path / "t.csv").write_text("a,b\n1,2\n,4\n5,six\n7,8\n")
    rows = read(jem_tf.score(backbone, tmp_path / "t.csv", tmp_path / "scores.parquet").out)
    assert [row["error"] for row in rows] == [
        None,
        "column 'a' is missing",
        "column 'b' is 'six', not a finite number",
        None,
    ]
    assert rows[0]["class"] in "012" and np.isfinite(rows[3]["energy"])


def write_config(directory, source):
    directory.mkdir()
    config = RunSettings(recipes.get("tabular"), data=source).to_config("old", ("u", "v"))
    (directory / "config.json").write_text(json.dumps(config))


def test_the_default_column_of_labels_is_no_input(tmp_path):
    write_config(tmp_path / "run", DataSource("t.csv"))
    (tmp_path / "t.csv").write_text("a,b,label\n1,2,u\n")
    completed = scoring._complete_columns(tmp_path / "run", tmp_path / "t.csv", None, None)
    assert completed == ("label", None)


def test_a_run_knows_the_columns_that_it_was_trained_on(tmp_path):
    write_config(tmp_path / "run", DataSource("old.csv", label="kind", columns=("b", "a")))
    (tmp_path / "known.csv").write_text("id,a,b,kind\n1,2,3,u\n")
    (tmp_path / "new.csv").write_text("id,a,b\n1,2,3\n")

    def complete(name, label=None, columns=None):
        return scoring._complete_columns(tmp_path / "run", tmp_path / name, label, columns)

    assert complete("known.csv") == ("kind", ["b", "a"])
    assert complete("new.csv") == (None, ["b", "a"])
    assert complete("known.csv", "id", ["a"]) == ("id", ["a"])
    assert scoring._complete_columns("grpc://a/b", tmp_path / "new.csv", None, None) == (None, None)


def test_image_files_in_a_parquet_column(export, photos, tmp_path):
    files = sorted(photos.rglob("*.png"))
    table = pa.table({"image": [file.read_bytes() for file in files]})
    pq.write_table(table, tmp_path / "t.parquet")
    rows = read(jem_tf.score(export, tmp_path / "t.parquet", tmp_path / "a.parquet").out)
    expected = read(jem_tf.score(export, files, tmp_path / "b.parquet").out)
    np.testing.assert_allclose(values(rows, "energy"), values(expected, "energy"), rtol=1e-5)


@pytest.mark.parametrize(
    ("names", "are_names", "labels", "expected"),
    [
        (("1", "2", "3"), True, [1, 3.0, "2", 0, None], ["1", "3", "2", None, None]),
        (("1", "2", "3"), False, [1, np.int64(0), 7], ["2", "1", None]),
        (("cat", "dog"), True, ["dog", 0, 1.0, "2"], ["dog", "cat", "dog", None]),
        (("cat", "dog"), False, ["dog", "1", None], ["dog", None, None]),
        (None, False, ["cat", 1], None),
    ],
)
def test_labels_as_class_names(names, are_names, labels, expected):
    assert batches._label_names(labels, names, are_names) == expected


def test_what_cannot_be_scored_is_said(export, tmp_path, images, npz):
    with pytest.raises(ValueError, match=r"ends in \.parquet, \.csv, \.jsonl"):
        jem_tf.score(export, npz, tmp_path / "scores.xlsx")
    with pytest.raises(ValueError, match="no trained model"):
        jem_tf.score(tmp_path / "none", npz, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="no file"):
        jem_tf.score(export, tmp_path / "none.csv", tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="Unknown engine 'spark'"):
        jem_tf.score(export, npz, tmp_path / "a.parquet", engine="spark")
    with pytest.raises(ValueError, match="no image files"):
        (tmp_path / "empty").mkdir()
        jem_tf.score(export, tmp_path / "empty", tmp_path / "a.parquet")
    module = tf.Module()
    module.double = tf.function(lambda x: 2 * x, input_signature=[tf.TensorSpec([None, 2])])
    tf.saved_model.save(module, str(tmp_path / "other"), module.double)
    with pytest.raises(ValueError, match=r"must be an export of jem_tf: .* no class_id, energy"):
        jem_tf.score(tmp_path / "other", npz, tmp_path / "a2.parquet")
    with pytest.raises(ValueError, match=r"shape \[batch, 6, 6, 1\]"):
        jem_tf.score(export, images[0][:, :3], tmp_path / "b.parquet")
