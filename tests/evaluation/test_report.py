"""The whole evaluation as a user runs it, and its page as a browser shows it."""

import json
import shutil

import numpy as np
import pytest

from jem_tf import cli, evaluation
from jem_tf.evaluation.measures import robustness
from jem_tf.evaluation.report import charts
from jem_tf.evaluation.report import page as report
from jem_tf.training import run_directory as runs

HEADINGS = (
    "All figures",
    "Classification",
    "Calibration",
    "Inputs that do not belong",
    "Robustness",
    "Samples",
    "Training",
)


@pytest.fixture(scope="module")
def baseline(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "plain"
    flags = ["--objective", "cross_entropy", "--epochs", "2", "--out", str(out)]
    assert cli.main(["train", small, *flags]) == 0
    return out


@pytest.fixture(scope="module")
def reported(trained, baseline, tmp_path_factory):
    """The report on a run beside its baseline."""
    out = tmp_path_factory.mktemp("report") / "here"
    flags = ["--baseline", str(baseline), "--ood", "noise", "constant", "--out", str(out)]
    assert cli.main(["evaluate", str(trained), *flags]) == 0
    return out


def test_metrics_hold_every_part_for_both_models(reported, trained, baseline):
    metrics = json.loads((reported / "metrics.json").read_text())
    assert set(metrics["models"]) == {str(trained), str(baseline)}
    for model in metrics["models"].values():
        assert model["classification"]["rows"] == 16
        for kind in ("gradient_norm", "log_density", "max_probability"):
            assert set(model["ood"][kind]) == {"noise", "constant"}
        attacks = [curve["attack"] for curve in model["robustness"][""]]
        assert attacks == ["linf", "l2", "boundary", "pointwise"]
    jem = metrics["models"][str(trained)]
    assert set(jem["robustness"]) == {"", "JEM-1", "JEM-10"}
    assert jem["generation"]["features"]["published"] is False
    assert len(jem["training"]["loss"]) == 2
    assert metrics["interrupted"] is None


def test_the_page_is_whole_and_needs_nothing_else(reported):
    page = (reported / "report.html").read_text()
    for heading in HEADINGS:
        assert f"<h2>{heading}</h2>" in page
    for _, values in report.rows(json.loads((reported / "metrics.json").read_text())):
        assert all(f"<td>{value}</td>" in page for value in values)
    assert "<script" not in page and 'src="http' not in page and 'href="http' not in page
    assert "url(http" not in page and "@import" not in page
    for name in ("reliability.svg", "attack_linf.svg", "samples.png", "chains.gif"):
        assert (reported / name).stat().st_size > 500


def test_names_from_outside_are_escaped(reported, tmp_path):
    """Class and file names are text, never markup."""
    metrics = json.loads((reported / "metrics.json").read_text())
    evil = "<script>alert(1)</script>"
    metrics["class_names"] = [evil, "b"]
    metrics["models"] = dict(zip((evil, "other"), metrics["models"].values()))
    shutil.copytree(reported, tmp_path / "copy")
    page = report.write(tmp_path / "copy", metrics).read_text()
    assert "<script" not in page and "&lt;script&gt;" in page


def test_charts_repeat_to_the_byte(reported):
    metrics = json.loads((reported / "metrics.json").read_text())
    assert charts.draw(metrics) == charts.draw(metrics)


def test_divergences_are_drawn_and_counted(reported, tmp_path):
    metrics = json.loads((reported / "metrics.json").read_text())
    healthy = charts.draw(metrics)["training"]
    next(iter(metrics["models"].values()))["training"]["rollbacks"] = [0.0, 3.0]
    assert charts.draw(metrics)["training"] != healthy
    shutil.copytree(reported, tmp_path / "copy")
    assert "the guard undid (dotted): 3." in report.write(tmp_path / "copy", metrics).read_text()


def test_an_interruption_keeps_what_was_finished(trained, tmp_path, monkeypatch, capsys):
    calls = []

    def interrupted(*arguments, **options):
        calls.append(arguments[0])
        if len(calls) > 1:
            raise KeyboardInterrupt
        return robustness.Curve("linf", [0.0, 1.0], [1.0, 0.0], 1, 0.5, ["weak"])

    monkeypatch.setattr(robustness, "attack", interrupted)
    out = tmp_path / "report"
    flags = ["--ood", "noise", "--attacks", "linf", "l2", "--out", str(out)]
    assert cli.main(["evaluate", str(trained), *flags]) == 130
    error = capsys.readouterr().err
    assert "while measuring robustness" in error and str(out / "report.html") in error
    (model,) = json.loads((out / "metrics.json").read_text())["models"].values()
    assert "ood" in model and [c["attack"] for c in model["robustness"][""]] == ["linf"]
    assert any("weak" in note for note in json.loads((out / "metrics.json").read_text())["notes"])
    page = (out / "report.html").read_text()
    assert "<strong>Interrupted</strong> while measuring robustness" in page
    assert "<h2>Calibration</h2>" in page and "<h2>Samples</h2>" not in page


@pytest.mark.slow
def test_a_part_that_fails_costs_no_other(trained, tmp_path, monkeypatch, capsys):
    def fails(*arguments, **options):
        raise RuntimeError("the attack went wrong")

    monkeypatch.setattr(robustness, "attack", fails)
    assert cli.main(["evaluate", str(trained), "--ood", "noise", "--out", str(tmp_path)]) == 2
    assert "These parts failed: robustness" in capsys.readouterr().err
    page = (tmp_path / "report.html").read_text()
    assert "robustness failed. RuntimeError: the attack went wrong" in page
    assert "<h2>Calibration</h2>" in page and "<h2>Samples</h2>" in page


def tables(rng):
    y = np.arange(120) % 3
    return {"x": (rng.normal(size=(120, 5)) + y[:, None]).astype(np.float32), "y": y}


def colours(rng):
    """Test rows in the order of class, one class missing, names a chart might take for maths."""
    x = rng.integers(0, 255, (120, 4, 4, 3)).astype(np.uint8)
    y = np.arange(120) % 3
    names = np.array(["$10 to $20", "<b>", "c"])
    test = np.sort(y[:60])
    test[test == 2] = 1
    return {"x_train": x, "y_train": y, "x_test": x[:60], "y_test": test, "class_names": names}


@pytest.mark.parametrize("make", [tables, pytest.param(colours, marks=pytest.mark.slow)])
def test_all_kinds_of_data_are_reported(make, tmp_path, capsys):
    np.savez(tmp_path / "rows.npz", **make(np.random.default_rng(0)))
    flags = ["--epochs", "1", "--batch-size", "32", "--steps", "1", "--out", str(tmp_path / "run")]
    assert cli.main(["train", str(tmp_path / "rows.npz"), *flags]) == 0
    run = str(tmp_path / "run")
    assert cli.main(["evaluate", run, "--attacks", "linf", "--out", str(tmp_path / "r")]) == 0
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert metrics["failed"] == {}
    page = (tmp_path / "r" / "report.html").read_text()
    assert "<h2>Samples</h2>" in page and "<b>" not in page
    assert ("<h2>Robustness</h2>" in page) == (make is colours)


@pytest.mark.slow
def test_an_export_is_reported_beside_a_keras_file(trained, small, tmp_path):
    assert (
        cli.main(["export", str(trained), "--out", str(tmp_path / "m"), "--sample-steps", "7"]) == 0
    )
    model = runs.load(trained).backbone
    model.save(tmp_path / "plain.keras")
    flags = ["--dataset", small, "--attacks", "l2", "boundary", "--out", str(tmp_path / "r")]
    flags += ["--baseline", str(tmp_path / "plain.keras"), "--ood", "noise"]
    assert cli.main(["evaluate", str(tmp_path / "m"), *flags]) == 0
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    one, other = metrics["models"].values()
    assert one["classification"] == other["classification"]
    assert one["generation"]["steps"] == 7
    assert one["robustness"][""][0]["accuracy"] == other["robustness"][""][0]["accuracy"]


@pytest.mark.slow
def test_scores_that_are_no_numbers_are_flagged(trained, tmp_path, monkeypatch):
    real = evaluation.Subject.scores

    def broken(self, x, about="", labelled=False):
        found = real(self, x, about, labelled)
        if about.endswith("noise"):
            found["gradient_norm"][:3] = np.nan
        return found

    monkeypatch.setattr(evaluation.Subject, "scores", broken)
    flags = ["--ood", "noise", "--attacks", "none", "--out", str(tmp_path)]
    assert cli.main(["evaluate", str(trained), *flags]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    (model,) = metrics["models"].values()
    assert model["ood"]["gradient_norm"]["noise"]["non_finite"] == 3
    assert any("3 scores gradient_norm of noise" in note for note in metrics["notes"])
    assert 'title="3 scores are no numbers"' in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{tmp}"], "neither a run directory"),
        (["{tmp}/nothing.keras"], "no trained model"),
        (["{run}", "--ood", "nois"], "Did you mean 'noise'"),
        (["{run}", "--attacks", "linff"], "Did you mean 'linf'"),
        (["{run}", "--budget", "quik"], "Did you mean 'quick'"),
        (["{run}", "--dataset", "digits"], "takes inputs of shape (4, 4, 1), digits has (8, 8, 1)"),
        (["{run}", "--ood", "digits"], "--resize"),
        (["{run}", "--dataset", "{tmp}/three.npz"], "knows 2 classes, three has 3"),
        (["{run}", "--baseline", "{tmp}/other"], "other classes (cat, dog)"),
        (["{run}/model.keras"], "give --dataset"),
        (["{run}", "--inception", "{tmp}/none.pb", "--attacks", "none"], "no Inception network"),
    ],
)
def test_mistakes_are_answered_in_words(arguments, message, run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "other")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    config["class_names"] = ["cat", "dog"]
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (30, 4, 4, 1)).astype(np.uint8), np.arange(30) % 3
    np.savez(tmp_path / "three.npz", x=x, y=y)
    filled = [a.format(tmp=tmp_path, run=run) for a in arguments]
    assert cli.main(["evaluate", *filled]) == 2
    error = capsys.readouterr().err
    assert error.startswith("jem-tf: ") and message in error
    assert not (run / "report").exists()  # nothing was begun


def test_resized_sets_can_be_used(run, tmp_path):
    flags = ["--ood", "digits", "--resize", "--attacks", "none", "--out", str(tmp_path)]
    assert cli.main(["evaluate", str(run), *flags]) == 0
    (model,) = json.loads((tmp_path / "metrics.json").read_text())["models"].values()
    assert set(model["ood"]["log_density"]) == {"digits"}


@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_fits_phones_and_desktops(browser, reported, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.get((reported / "report.html").as_uri())
    assert browser.get_log("browser") == []  # no errors, no warnings
    overflow = "return document.documentElement.scrollWidth - window.innerWidth"
    assert browser.execute_script(overflow) <= 0
    broken = "return [...document.images].filter(i => !i.naturalWidth).length"
    assert browser.execute_script(broken) == 0
    size = "return parseFloat(getComputedStyle(document.querySelector('.answers p')).fontSize)"
    assert browser.execute_script(size) >= 14


def test_the_page_asks_for_nothing_and_prints(browser, reported):
    browser.get_log("performance")
    browser.get((reported / "report.html").as_uri())
    events = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
    asked = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    assert asked and all(url.startswith(("file:", "data:")) for url in asked)
    import base64

    pdf = browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.7})
    pages = base64.b64decode(pdf["data"]).count(b"/Type /Page\n")
    assert 3 <= pages <= 14
