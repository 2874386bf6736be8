"""`benchmarks/paper_tables.py`: figures in files appear in their cells, and nothing else does."""

import json
import shutil
import sys

import compare
import measured
import paper_tables
import pytest

RECIPE = {"backbone": "convnet", "backbone_options": {"width": 8}, "epochs": 3}


@pytest.fixture
def evaluated(trained, report_directory, tmp_path):
    """A copy of the run `trained`, with its report where `jem-tf evaluate` writes it."""
    run = shutil.copytree(trained, tmp_path / "runs" / "mine")
    shutil.copytree(report_directory, run / "report")
    return run


def write_result(directory, objective, accuracy, seed=0, options=None, seconds=None):
    """Write a `result.json` as `compare.py` does."""
    recipe = {**RECIPE, "objective_options": options or {}}
    settings = {"data": "digits", "objective": objective, "seed": seed, "seconds": seconds}
    curve = {"attack": "linf", "epsilons": [0.0, 4 / 255], "accuracy": [accuracy, 0.5], "rows": 9}
    content = {
        "settings": {**settings, "recipe": recipe},
        "accuracy": accuracy,
        "ece": 0.012,
        "auroc": {"log_density": {"noise": 0.875}},
        "robustness": {"": [curve]},
    }
    directory.mkdir()
    (directory / "result.json").write_text(json.dumps(content))
    return directory


def read_rows(text, title):
    """Return the rows of the tables below a heading, as dicts by the head of their table."""
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows, head = [], None
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells
        elif cells[0] != "---":
            rows.append(dict(zip(head, cells, strict=True)))
    return rows


def test_an_evaluated_run_fills_the_row_of_its_objective(evaluated):
    text = "\n\n".join(paper_tables.tables([evaluated]))
    metrics = json.loads((evaluated / "report" / "metrics.json").read_text())
    model = next(iter(metrics["models"].values()))
    rows = {row["model"]: row for row in read_rows(text, "Accuracy, Inception score and FID")}
    joint, glow = rows["JEM"], rows["Glow"]
    assert joint["accuracy"] == "92.9" and joint["FID"] == "38.4"
    assert joint["here: accuracy"] == f"{100 * model['classification']['accuracy']:.1f}"
    features = model["generation"]["features"]
    assert joint["here: FID"] == f"{features['fid']:.1f}"
    assert joint["what ran here"].startswith(
        "small, convnet, 2 epochs, seed 0; 10 samples, in feat"
    )
    assert glow["accuracy"] == "67.6" and glow["here: accuracy"] == glow["what ran here"] == ""

    ood = read_rows(text, "AUROC of detection, by score and set")
    (row,) = [r for r in ood if (r["score"], r["model"]) == ("max p(y given x)", "JEM")]
    assert row["CelebA"] == "0.79"
    assert row["here: noise"] == f"{model['ood']['max_probability']['noise']['auroc']:.2f}"

    attacks = read_rows(text, "Accuracy under attack")
    curve = next(c for c in model["robustness"]["JEM-10"] if c["attack"] == "linf")
    (row,) = [r for r in attacks if r["model"] == "JEM, k = 10"]
    printed = [size for size in curve["epsilons"] if f"{255 * size:.3g}" in row]
    assert len(printed) > 1
    for size, accuracy in zip(curve["epsilons"], curve["accuracy"]):
        assert size not in printed or row[f"{255 * size:.3g}"] == f"{100 * accuracy:.1f}"
    assert {"L2" in key for row in attacks for key in row if "attack" in key} == {False, True}


def test_the_table_of_hdge_has_all_columns_from_comparisons(tmp_path):
    only = {"classifies": False, "temperature": 0.1}
    runs = [
        write_result(tmp_path / "a", "cross_entropy", 0.91),
        write_result(tmp_path / "b", "supcon", 0.92),
        write_result(tmp_path / "c", "joint", 0.93),
        write_result(tmp_path / "d", "hdge", 0.94, seconds=30.0),
        write_result(tmp_path / "e", "hdge", 0.95, options=only),
    ]
    text = "\n\n".join(paper_tables.tables(runs))
    rows = read_rows(text, "Accuracy beside contrastive learning")
    assert [row["here: accuracy"] for row in rows] == ["91.0", "92.0", "93.0", "94.0", "95.0"]
    assert [row["CIFAR-100"] for row in rows] == ["79.9", "80.5", "78.1", "80.9", "80.6"]
    assert rows[-1]["what ran here"] == "digits, convnet width=8, 3 epochs, seed 0"
    assert rows[-2]["what ran here"] == "digits, convnet width=8, 30 s, seed 0"


def test_only_runs_that_differ_in_the_seed_are_averaged(tmp_path):
    paths = [
        write_result(tmp_path / "a", "joint", 0.90),
        write_result(tmp_path / "b", "joint", 0.94, seed=3),
        write_result(tmp_path / "c", "joint", 0.10, options={"weight": 1.0}),
    ]
    results = measured.merge([result for path in paths for result in measured.read(path)])
    assert [r.values["accuracy"] for r in results] == [pytest.approx(0.92), 0.10]
    assert str(results[0]).endswith("seeds 0, 3") and str(results[1]).endswith("seed 0")


def test_a_file_of_detectors_is_read_by_run(evaluated, tmp_path, capsys):
    file = tmp_path / "detectors.json"
    aurocs = {
        "fused": {"noise": 0.99, "a/textures": 0.5},
        "residual": {"noise": 0.1},
        "pytorch-ood KNN": {"noise": 0.75},
    }
    file.write_text(json.dumps({str(evaluated): aurocs}))
    text = "\n\n".join(paper_tables.tables([file, tmp_path]))
    rows = read_rows(text, "AUROC of the verdict beside scores of an OOD library")
    assert [(r["score"], r["noise"], r["textures"]) for r in rows] == [
        ("fused", "0.99", "0.50"),
        ("pytorch-ood KNN", "0.75", ""),
    ]
    assert "nothing was measured" in capsys.readouterr().err
    # The file says nothing about accuracy.
    assert not any(row["what ran here"] for row in read_rows(text, "Calibration"))


def test_a_likelihood_model_has_scores_and_no_classifier(tmp_path):
    """Its settings name a model and no backbone."""
    config = {"data": {"dataset": "digits"}, "seed": 1, "recipe": {"model": "glow", "epochs": 4}}
    aurocs = {"log_density": {"noise": {"auroc": 0.25}}}
    (tmp_path / "report").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(config))
    metrics = {"models": {"a": {"ood": aurocs}}}
    (tmp_path / "report" / "metrics.json").write_text(json.dumps(metrics))
    text = "\n\n".join(paper_tables.tables([tmp_path]))
    (glow,) = [r for r in read_rows(text, "AUROC of log p(x), by set") if r["model"] == "Glow"]
    assert (glow["uniform"], glow["here: noise"]) == ("1.00", "0.25")
    assert glow["what ran here"] == "digits, glow, 4 epochs, seed 1"


def test_a_file_of_likelihood_models_fills_their_rows(tmp_path):
    """As `likelihood.py` writes it: AUROC by run, and bits per dimension."""
    data, recipe = {"dataset": "digits"}, {"model": "pixelcnn", "epochs": 4}
    config = {"data": data, "seed": 1, "recipe": recipe, "objective": "pixelcnn"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    measured = {"auroc": {"log_density": {"noise": 0.125}}, "bits_per_dim": 3.5}
    file = tmp_path / "likelihood.json"
    file.write_text(json.dumps({"likelihood": {str(tmp_path): measured}}))
    text = "\n\n".join(paper_tables.tables([file]))
    rows = read_rows(text, "AUROC of log p(x), by set")
    (row,) = [row for row in rows if row["model"] == "PixelCNN++"]
    assert (row["constant"], row["here: noise"]) == ("0.00", "0.12")
    assert row["what ran here"] == "digits, pixelcnn, 4 epochs, seed 1"


@pytest.mark.slow
def test_a_comparison_can_be_read(small, tmp_path, monkeypatch, capsys):
    setting = "only: objective_options.classifies=false, objective_options.temperature=0.1"
    flags = ["--epochs", "1", "--objectives", "hdge", "--settings", setting, "--ood", "noise"]
    monkeypatch.setattr(sys, "argv", ["compare.py", small, *flags, "--out", str(tmp_path)])
    compare.main()
    (run,) = tmp_path.iterdir()
    (result,) = measured.read(run)
    assert result.member == "hdge only" and result.seeds == (0,)
    fused, density = (result.get("auroc", kind, "noise") for kind in ("fused", "log_density"))
    assert 0.0 <= density <= 1.0 and 0.0 <= fused <= 1.0
    assert result.get("attacks", "|linf|96")  # test rows: a fifth of 480
