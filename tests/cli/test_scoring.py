"""`jem-tf score` as a user types it."""

import csv
import json

import numpy as np
from PIL import Image

from jem_tf import data
from jem_tf_cli import main


def test_a_run_scores_a_table_with_errors(trained, small, tmp_path, capsys):
    x, y = data.load(small).arrays("test")
    lines = [",".join(map(str, [*row.ravel(), label])) for row, label in zip(x, y)]
    lines[3], lines[5] = "1,2,3", lines[5].replace(lines[5].split(",")[0], "dark", 1)
    table, out = tmp_path / "t.csv", tmp_path / "scores.jsonl"
    table.write_text("\n".join([",".join([*map(str, range(16)), "label"]), *lines]) + "\n")
    command = ["score", str(trained), str(table), "--out", str(out)]
    assert main([*command, "--part-rows", "40", "--report"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == len(y) == 96
    assert {i: row["error"] for i, row in enumerate(rows) if row["error"]} == {
        3: "the line has 3 cells, and the header 17",
        5: "column '0' is 'dark', not a finite number",
    }
    valid = [row for row in rows if row["error"] is None]
    assert sum(row["class"] == row["label"] for row in valid) > 90
    assert all(row["is_ood"] is not None for row in valid)
    printed = capsys.readouterr().out
    assert "Scored 96 of 96 rows" in printed and "2 with an error" in printed
    assert f"Wrote {out}" in printed and f"Wrote {tmp_path / 'scores.html'}" in printed
    page = (tmp_path / "scores.html").read_text()
    assert "not a finite number</td><td>1</td>" in page and "of 94 labels agree" in page
    assert main(command) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_a_folder_with_a_broken_file_and_a_report(trained, small, tmp_path, capsys):
    x, y = data.load(small).arrays("test", 8)
    for i, (image, label) in enumerate(zip(x, y)):
        folder = tmp_path / "photos" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        pixels = ((image[..., 0] + 1) * 127.5).round().astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    (tmp_path / "photos" / "broken.jpg").write_bytes(b"?")
    out = tmp_path / "scores.csv"
    command = ["score", str(trained / "model.keras"), str(tmp_path / "photos"), "--out", str(out)]

    def scores(*flags):
        assert main([*command, *flags]) == 0
        assert "no verdict, 1 with an error" in capsys.readouterr().out
        rows = list(csv.DictReader(out.open()))
        assert [row["id"] for row in rows if row["error"]] == [f"{tmp_path}/photos/broken.jpg"]
        return [row for row in rows if not row["error"]]

    rows = scores("--report")
    assert [row["label"] for row in rows] == sorted(map(str, y))
    page = (tmp_path / "scores.html").read_text()
    assert page.count("data:image/png;base64,") >= 8 and "not an image file" in page
    other = scores("--overwrite", "--pixel-range", "0", "255")
    assert [row["energy"] for row in other] != [row["energy"] for row in rows]


def test_several_tables_are_refused(trained, tmp_path, capsys):
    files = [tmp_path / name for name in ("a.csv", "b.csv")]
    for file in files:
        file.write_text("a\n1\n")
    command = ["score", str(trained), *map(str, files), "--out", str(tmp_path / "s.csv")]
    assert main(command) == 2
    assert "one at a time" in capsys.readouterr().err
