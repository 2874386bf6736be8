"""Parts of scores: stopping, continuing, and jobs that are not the same."""

import os
from dataclasses import fields

import keras
import numpy as np
import pytest

import jem_tf
from jem_tf.scoring import batches, scoring
from jem_tf.scoring.parts import Parts
from scoring.tables import read, values


def test_a_stopped_call_continues_where_it_was(export, npz, tmp_path, monkeypatch):
    expected = read(jem_tf.score(export, npz, tmp_path / "whole.parquet", part_rows=32).out)
    out, scored = tmp_path / "scores.parquet", []
    compute = batches._score

    def stop(scorer, batch, prepared):
        if len(scored) == 4:
            raise KeyboardInterrupt
        scored.append(batch.ids)
        return compute(scorer, batch, prepared)

    monkeypatch.setattr(batches, "_score", stop)
    with pytest.raises(KeyboardInterrupt, match="continues where it was"):
        jem_tf.score(export, npz, out, part_rows=32, batch_size=20)
    assert not out.exists()
    written = sorted(path.name for path in (tmp_path / "scores.parquet.parts").iterdir())
    assert written == ["000000.parquet", "000001.parquet", "job.json"]
    monkeypatch.setattr(batches, "_score", compute)
    summary = jem_tf.score(export, npz, out, part_rows=32, batch_size=20)
    assert summary.scored == 200 - 64
    assert [row["id"] for row in read(out)] == [row["id"] for row in expected]
    energies = values(expected, "energy")
    np.testing.assert_allclose(values(read(out), "energy"), energies, rtol=1e-4)


@pytest.fixture
def job(tmp_path):
    """A file of scores that exists, parts of it, and its description."""
    (tmp_path / "a.csv").write_text("old")
    parts = Parts(tmp_path / "a.csv", rows=20, part_rows=10)
    parts.begin({"model": "m"}, overwrite=True)
    parts.path(0).touch()
    return parts, {"model": "m"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_stopped_call_that_overwrites_continues(job, overwrite):
    parts, description = job
    parts.begin(description, overwrite)
    assert parts.missing() == [1]


def test_overwrite_replaces_parts_of_another_job(job):
    parts, _ = job
    parts.begin({"model": "other"}, overwrite=True)
    assert parts.missing() == [0, 1]


def test_objects_in_memory_are_not_continued(job):
    parts, _ = job
    parts.begin(None, overwrite=True)
    parts.path(0).touch()
    parts.out.unlink()
    parts.begin(None, overwrite=False)
    assert parts.missing() == [0, 1]


def test_a_job_is_identified_by_the_content_of_its_files(tmp_path):
    table, files = tmp_path / "t.csv", [tmp_path / "a.png", tmp_path / "b.png"]
    table.write_text("a\n1\n")
    for file in files:
        file.write_bytes(b"1")

    def describe(data, model="m.keras"):
        options = dict.fromkeys(f.name for f in fields(scoring.Job))
        job = scoring.Job(**options | {"model": model, "data": data, "split": "test"})
        return scoring._describe(job, job.open_rows().files)

    for source, changed in ((table, table), (files, files[1])):
        before = describe(source)
        assert describe(source) == before
        changed.write_text("a\n2\n")
        os.utime(changed, (1, 1))
        assert describe(source) != before
    assert describe(np.ones((3, 2))) is None and describe(table, keras.Sequential()) is None


def test_parts_of_another_job_are_not_mixed_with_this_one(export, npz, tmp_path, monkeypatch):
    out = tmp_path / "scores.parquet"
    with monkeypatch.context() as patched:
        patched.setattr(scoring, "_score_here", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            jem_tf.score(export, npz, out, part_rows=64)
    first = out.with_name("scores.parquet.parts") / "000000.parquet"
    first.touch()
    with pytest.raises(ValueError, match="another job; different: part_rows"):
        jem_tf.score(export, npz, out, part_rows=32)
    first.unlink()  # without parts, a failed call is not in the way
    jem_tf.score(export, npz, out, part_rows=32)
    jem_tf.score(export, npz, out, part_rows=32, overwrite=True)
    with pytest.raises(ValueError, match=r"exists: --overwrite"):
        jem_tf.score(export, npz, out)
