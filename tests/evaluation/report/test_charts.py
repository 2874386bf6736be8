"""Charts: equal metrics give equal bytes, and other metrics other charts."""

import copy

import pytest

from jem_tf.evaluation.report import charts


@pytest.fixture
def metrics():
    """Metrics of one model, written by hand, with numbers for every chart."""
    bins = {"ece": 0.1, "count": [3, 5], "confidence": [0.6, 0.9], "accuracy": [0.5, 1.0]}
    curve = {"epsilons": [0.0, 8 / 255], "accuracy": [1.0, 0.5]}
    histogram = {"edges": [0.0, 1.0, 2.0], "shares": {"data": [0.2, 0.8], "noise": [1.0, 0.0]}}
    model = {
        "classification": {"confusion": [[3, 1], [0, 4]]},
        "calibration": {"before": bins, "after": bins},
        "selective": {"aurc": 0.1, "coverage": [0.5, 1.0], "risk": [0.0, 0.2]},
        "histograms": {"gradient_norm": histogram, "log_density": histogram},
        "robustness": {"": [{"attack": "linf", **curve}], "JEM-1": [{"attack": "l2", **curve}]},
        "training": {"loss": [2.0, 1.0], "accuracy": [0.5, 0.9], "energy_data": [0.0, -1.0]},
    }
    return {"models": {"mine": model}, "class_names": ["$a$", "<b>"]}


def test_equal_metrics_give_equal_bytes(metrics):
    drawn = charts.draw(metrics)
    assert set(drawn) == {
        *("reliability", "risk_coverage", "confusion", "log_density", "gradient_norm"),
        *("attack_linf", "attack_l2", "training"),
    }
    assert charts.draw(metrics) == drawn


def test_class_names_are_no_formulas(metrics):
    assert "$a$" in charts.draw(metrics)["confusion"]


def test_only_charts_with_numbers_are_drawn(metrics):
    model = metrics["models"]["mine"]
    metrics["models"]["mine"] = {"training": model["training"]}
    assert set(charts.draw(metrics)) == {"training"}
    assert charts.draw({"models": {"mine": {}}, "class_names": []}) == {}


def test_rollbacks_are_drawn(metrics):
    training = {"training": metrics["models"]["mine"]["training"]}
    healthy = {"models": {"mine": training}, "class_names": []}
    rolled_back = copy.deepcopy(healthy)
    rolled_back["models"]["mine"]["training"]["rollbacks"] = [0.0, 3.0]
    assert charts.draw(rolled_back)["training"] != charts.draw(healthy)["training"]
