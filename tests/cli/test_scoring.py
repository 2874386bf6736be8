"""`jem-tf score` as a user types it."""

import json

from jem_tf_cli import main


def test_a_run_scores_a_table_with_errors(trained, small, tmp_path, capsys):
    out = tmp_path / "scores.jsonl"
    assert main(["score", str(trained), small, "--out", str(out), "--part-rows", "100"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 480 and {row["class"] for row in rows} == {"0", "1"}
    assert sum(row["class"] == row["label"] for row in rows) > 470
    printed = capsys.readouterr().out
    assert "Scored 480 of 480 rows" in printed and f"Wrote {out}" in printed
    assert main(["score", str(trained), small, "--out", str(out)]) == 2
    assert "--overwrite" in capsys.readouterr().err
