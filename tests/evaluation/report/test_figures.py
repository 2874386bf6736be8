"""The figures of a report as text, from metrics written by hand."""

import pytest

from jem_tf.evaluation import report


@pytest.fixture
def metrics():
    def model(accuracy, ece, auroc, robust):
        return {
            "classification": {"accuracy": accuracy, "nll": 0.1, "brier": None},
            "calibration": {"before": {"ece": ece, "mce": 0.2}, "after": {"ece": ece / 2}},
            "ood": {"log_density": {"noise": {"auroc": auroc}, "patches": {"auroc": 0.99}}},
            "robustness": {
                "": [{"attack": "linf", "epsilons": [0.0, 12 / 255], "accuracy": [0.9, robust]}],
                "JEM-1": [{"attack": "linf", "epsilons": [12 / 255], "accuracy": [1.0]}],
            },
        }

    return {"models": {"mine": model(0.98, 0.02, 0.9, 0.5), "plain": model(0.97, 0.04, 0.6, 0.1)}}


def test_rows_hold_a_value_for_each_model(metrics):
    rows = dict(report.rows(metrics))
    assert rows["accuracy"] == ["98.0\N{NO-BREAK SPACE}%", "97.0\N{NO-BREAK SPACE}%"]
    assert rows["AUROC log_density: noise"] == ["0.900", "0.600"]
    assert rows["accuracy, PGD linf ε = 12/255"][0] == "50.0\N{NO-BREAK SPACE}%"
    assert "Brier score" not in rows and "accuracy, PGD linf ε = 4/255" not in rows


def test_values_that_one_model_lacks_are_dashes(metrics):
    del metrics["models"]["plain"]["robustness"]
    assert dict(report.rows(metrics))["accuracy, PGD linf ε = 12/255"][1] == "–"


def test_the_table_has_a_line_for_each_row_and_aligned_columns(metrics):
    lines = report.table(metrics).split("\n")
    assert len(lines) == 1 + len(report.rows(metrics))
    assert lines[0].split() == ["mine", "plain"]
    assert len({len(line) for line in lines}) == 1


def test_the_accuracy_is_that_of_the_model_itself_not_of_jem_k(metrics):
    assert report.accuracy_at(metrics["models"]["mine"], "linf", 12 / 255) == 0.5
    assert report.accuracy_at(metrics["models"]["mine"], "linf", 4 / 255) is None
    assert report.accuracy_at({}, "linf", 4 / 255) is None


def test_answers_name_the_hardest_set_and_the_baseline(metrics):
    answers = dict(report.answers(metrics))
    assert len(answers) == 3  # there are no samples
    detection = answers["Does it detect out-of-distribution inputs?"]
    assert "Hardest: noise (plain: 60.0" in detection and "its log density" in detection
    assert "right in 98.0" in answers["Can its confidence be trusted?"]
    assert "(plain: 10.0" in answers["How easily is it fooled?"]


def test_the_answer_on_attacks_is_that_of_the_strongest_attack(metrics):
    curves = metrics["models"]["mine"]["robustness"][""]
    curves.append({**curves[0], "attack": "apgd_linf", "accuracy": [0.9, 0.4]})
    assert "right in 40.0" in dict(report.answers(metrics))["How easily is it fooled?"]
    rows = dict(report.rows(metrics))
    assert rows["accuracy, APGD linf ε = 12/255"] == ["40.0\N{NO-BREAK SPACE}%", "–"]
