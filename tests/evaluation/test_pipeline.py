"""The whole evaluation as a user runs it: results, interruptions, failures and wrong arguments."""

import json
import shutil

import numpy as np
import pytest

import jem_tf
from jem_tf import data, evaluation
from jem_tf.evaluation import report
from jem_tf.evaluation.measures import robustness
from jem_tf_cli import main


def run_evaluation(target, out, *flags, status=0):
    """Run `jem-tf evaluate` with the tiny budget and return the contents of `metrics.json`."""
    arguments = ["evaluate", str(target), "--budget", "tiny", "--out", str(out), *map(str, flags)]
    assert main(arguments) == status
    return json.loads((out / "metrics.json").read_text())


def test_metrics_hold_every_part_for_both_models(report_directory, trained, baseline):
    metrics = json.loads((report_directory / "metrics.json").read_text())
    assert set(metrics["models"]) == {str(trained), str(baseline)}
    for model in metrics["models"].values():
        assert model["classification"]["rows"] == 96
        for kind in ("fused", "gradient_norm", "log_density", "max_probability", "neighbours_1"):
            assert set(model["ood"][kind]) == {"noise", "constant", "digits"}
        assert set(model["verdict"]["flagged"]) == {"noise", "constant", "digits"}
        assert model["verdict"]["false_alarms"] < 0.2
        assert all(0 <= v <= 1 for v in model["verdict"]["oscr"].values())
        attacks = [curve["attack"] for curve in model["robustness"][""]]
        assert attacks == ["linf", "l2", "apgd_linf", "apgd_l2", "boundary", "pointwise"]
    jem = metrics["models"][str(trained)]
    assert set(jem["robustness"]) == {"", "JEM-1", "JEM-10"}
    assert jem["generation"]["features"]["published"] is False
    assert len(jem["training"]["loss"]) == 2
    assert metrics["interrupted"] is None and metrics["failed"] == {}


def test_another_model_recognises_the_samples(report_directory, baseline):
    """The judge is the baseline, and recognises test data as well as it classifies them."""
    jem, plain = json.loads((report_directory / "metrics.json").read_text())["models"].values()
    assert jem["generation"]["judge"] == str(baseline)
    accuracy = plain["classification"]["accuracy"]
    assert jem["generation"]["judge_accuracy"] == pytest.approx(accuracy)


@pytest.mark.slow
def test_attacks_have_the_sizes_that_are_asked_for(trained, tmp_path):
    results = run_evaluation(trained, tmp_path, "--attacks", "linf=4/255", "--ood", "noise")
    (model,) = results["models"].values()
    for curves in model["robustness"].values():  # of the model and of JEM-k
        assert [curve["epsilons"] for curve in curves] == [[0.0, 4 / 255]]
    assert "accuracy, PGD linf ε = 4/255" in report.table(results)
    assert not any("gray" in note for note in results["notes"])


def test_an_interruption_keeps_the_results_so_far(trained, tmp_path, monkeypatch, capsys):
    calls = []

    def interrupt_second_call(*arguments, **options):
        calls.append(arguments[0])
        if len(calls) > 1:
            raise KeyboardInterrupt
        return robustness.AttackCurve("linf", [0.0, 1.0], [1.0, 0.0], 1, 0.5, ["weak"])

    monkeypatch.setattr(robustness, "attack", interrupt_second_call)
    out = tmp_path / "report"
    flags = ["--ood", "noise", "--attacks", "linf", "l2"]
    metrics = run_evaluation(trained, out, *flags, status=130)
    error = capsys.readouterr().err
    assert "while measuring robustness" in error and str(out / "report.html") in error
    (model,) = metrics["models"].values()
    assert "ood" in model and [c["attack"] for c in model["robustness"][""]] == ["linf"]
    assert any("weak" in note for note in metrics["notes"])
    page = (out / "report.html").read_text()
    assert "<strong>Interrupted</strong> while measuring robustness" in page
    assert "<h2>Calibration</h2>" in page and "<h2>Samples</h2>" not in page


@pytest.mark.slow
def test_a_part_that_fails_does_not_stop_the_others(trained, tmp_path, monkeypatch, capsys):
    def fail(*arguments, **options):
        raise RuntimeError("the attack went wrong")

    monkeypatch.setattr(robustness, "attack", fail)
    run_evaluation(trained, tmp_path, "--ood", "noise", status=2)
    assert "These parts failed: robustness" in capsys.readouterr().err
    page = (tmp_path / "report.html").read_text()
    assert "robustness failed. RuntimeError: the attack went wrong" in page
    assert "<h2>Calibration</h2>" in page and "<h2>Samples</h2>" in page


def vectors(rng):
    y = np.arange(120) % 3
    return {"x": (rng.normal(size=(120, 5)) + y[:, None]).astype(np.float32), "y": y}


def colour_images(rng):
    """Test rows in the order of their classes, without one class, and with names like formulas."""
    x = rng.integers(0, 255, (120, 4, 4, 3)).astype(np.uint8)
    y = np.arange(120) % 3
    names = np.array(["$10 to $20", "<b>", "c"])
    y_test = np.sort(y[:60])
    y_test[y_test == 2] = 1
    return {"x_train": x, "y_train": y, "x_test": x[:60], "y_test": y_test, "class_names": names}


@pytest.mark.slow
@pytest.mark.parametrize("make", [vectors, colour_images])
def test_all_kinds_of_data_are_reported(make, tmp_path):
    np.savez(tmp_path / "rows.npz", **make(np.random.default_rng(0)))
    run = tmp_path / "run"
    flags = ["--epochs", "1", "--batch-size", "32", "--steps", "2", "--out", str(run)]
    assert main(["train", str(tmp_path / "rows.npz"), *flags]) == 0
    metrics = run_evaluation(run, tmp_path / "report", "--attacks", "linf")
    assert metrics["failed"] == {}
    page = (tmp_path / "report" / "report.html").read_text()
    assert "<h2>Samples</h2>" in page and "<b>" not in page
    assert ("<h2>Robustness</h2>" in page) == (make is colour_images)


@pytest.mark.slow
def test_an_export_is_reported_beside_a_keras_file(trained, small, tmp_path):
    flags = ["--out", str(tmp_path / "export"), "--sample-steps", "7"]
    assert main(["export", str(trained), *flags]) == 0
    plain = tmp_path / "plain.keras"
    jem_tf.model.loading.load(trained).backbone.save(plain)
    flags = ["--dataset", small, "--attacks", "l2", "boundary", "--baseline", plain]
    metrics = run_evaluation(tmp_path / "export", tmp_path / "report", *flags, "--ood", "noise")
    exported, keras_file = metrics["models"].values()
    assert exported["classification"] == keras_file["classification"]
    assert exported["generation"]["steps"] == 7
    attacks = [model["robustness"][""][0]["accuracy"] for model in (exported, keras_file)]
    assert attacks[0] == attacks[1]


@pytest.mark.slow
def test_non_finite_scores_are_noted(trained, tmp_path, monkeypatch):
    scores = evaluation.Subject.scores

    def break_noise(self, x, about="", labelled=False):
        result = scores(self, x, about, labelled)
        if about.endswith("noise"):
            result["gradient_norm"][:3] = np.nan
        return result

    monkeypatch.setattr(evaluation.Subject, "scores", break_noise)
    metrics = run_evaluation(trained, tmp_path, "--ood", "noise", "--attacks", "none")
    (model,) = metrics["models"].values()
    assert model["ood"]["gradient_norm"]["noise"]["non_finite"] == 3
    assert any("3 scores gradient_norm of noise" in note for note in metrics["notes"])
    assert 'title="3 scores are non-finite"' in (tmp_path / "report.html").read_text()


@pytest.fixture(scope="module")
def mistakes(trained, tmp_path_factory):
    """A directory with a run of other classes and a data set of three classes."""
    directory = tmp_path_factory.mktemp("mistakes")
    shutil.copytree(trained, directory / "run")
    shutil.copytree(trained, directory / "other")
    config = json.loads((directory / "other" / "config.json").read_text())
    config["class_names"] = ["cat", "dog"]
    (directory / "other" / "config.json").write_text(json.dumps(config))
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (30, 4, 4, 1)).astype(np.uint8), np.arange(30) % 3
    np.savez(directory / "three.npz", x=x, y=y)
    return directory


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"l2": (0.1,)}, "sizes of 'l2', which is not among the attacks linf"),
        ({"linf": (0.1, -1)}, "Received: .*-1"),
    ],
)
def test_sizes_of_attacks_are_checked(trained, tmp_path, sizes, message):
    subject, digits = evaluation.open_subject(trained), data.load("digits")
    with pytest.raises(ValueError, match=message):
        evaluation.evaluate(subject, digits, tmp_path, attacks=("linf",), attack_sizes=sizes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{tmp}"], "neither a run directory"),
        (["{tmp}/nothing.keras"], "no trained model"),
        (["{run}", "--ood", "nois"], "Did you mean 'noise'"),
        (["{run}", "--attacks", "linff"], "Did you mean 'linf'"),
        (["{run}", "--attacks", "linf=4/255", "linf"], "each attack once. Received: linf linf"),
        (["{run}", "--judge", "{tmp}/other"], "The judge"),
        (["{run}", "--judge", "{run}"], "The judge must be another model than"),
        (["{run}", "--budget", "quik"], "Did you mean 'quick'"),
        (["{run}", "--dataset", "digits"], "takes inputs of shape (4, 4, 1), digits has (8, 8, 1)"),
        (["{run}", "--ood", "digits"], "--resize"),
        (["{run}", "--dataset", "{tmp}/three.npz"], "has 2 classes, three has 3"),
        (["{run}", "--baseline", "{tmp}/other"], "other classes (cat, dog)"),
        (["{run}/model.keras"], "use --dataset"),
        (["{run}", "--inception", "{tmp}/none.pb", "--attacks", "none"], "no Inception network"),
    ],
)
def test_wrong_arguments_raise_errors_before_anything_is_measured(
    arguments, message, mistakes, capsys
):
    run = mistakes / "run"
    assert main(["evaluate", *(a.format(tmp=mistakes, run=run) for a in arguments)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("jem-tf: ") and message in error
    assert not (run / "report").exists()
