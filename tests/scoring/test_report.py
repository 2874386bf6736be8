"""The page about a table of scores."""

import re

import numpy as np
import pytest

import jem_tf
from jem_tf.data.rows import ArrayRows
from jem_tf.scoring import scorers
from jem_tf.scoring.findings import LARGEST, ClassFindings, Findings
from jem_tf.scoring.report import has_drifted, write_report


@pytest.fixture
def page(exported, images, tmp_path):
    """The page about 200 known rows with three wrong labels, ten of noise, and two errors."""
    x, y = images
    wrong = y.copy()
    wrong[[3, 30, 33]] = 1 - wrong[[3, 30, 33]]
    noise = 3 * np.random.default_rng(0).normal(size=(10, *x.shape[1:]))
    broken = np.full((2, *x.shape[1:]), np.nan)
    rows = np.concatenate([x, noise, broken]).astype(np.float32)
    np.savez(tmp_path / "rows.npz", x=rows, y=np.concatenate([wrong, -np.ones(12, int)]))
    summary = jem_tf.score(
        exported / "images", tmp_path / "rows.npz", tmp_path / "scores.parquet", report=True
    )
    assert summary.report == tmp_path / "scores.html"
    return summary, summary.report.read_text()


def test_the_page_has_shares_pictures_label_errors_and_reasons(page):
    summary, text = page
    assert f"{summary.out_of_distribution} of 210" in text and summary.out_of_distribution >= 10
    assert "197 of 200 labels agree" in text
    errors = text.split("Likely label errors")[1].split("<h2>")[0]
    assert {"3", "30", "33"} >= set(re.findall(r"<figcaption>(\d+)<br>", errors)) != set()
    strangest = text.split("Strangest inputs")[1].split("<h2>")[0]
    found = set(re.findall(r"<figcaption>(\d+)<br>", strangest))
    assert {str(i) for i in range(200, 210)} <= found
    assert strangest.count("data:image/png;base64,") == LARGEST
    assert "a value is not finite</td><td>2</td>" in text
    assert "<script" not in text and "http" not in text


def test_a_model_without_a_detector_has_no_verdict(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    x = np.random.default_rng(0).normal(size=(30, 2))
    summary = jem_tf.score(model, x, tmp_path / "scores.csv", report=True)
    text = summary.report.read_text()
    assert summary.out_of_distribution is None
    assert "The model has no verdict" in text and "<td>yes</td>" not in text


@pytest.mark.parametrize(("rate", "text"), [(0.001, "about 0.1 % are"), (None, " %) are out")])
def test_the_expected_share_is_that_of_the_detector(tmp_path, rate, text):
    findings = Findings()
    findings.rows = findings.judged = 10
    page = write_report(tmp_path / "a.csv", findings, ArrayRows(np.ones((10, 2))), rate).read_text()
    assert text in page and ("expected" in page) == (rate is not None)


def test_the_rate_of_a_model_is_known(exported):
    assert scorers.open_scorer(exported / "images").false_alarm_rate == 0.05


def test_a_missing_package_is_named_before_anything_is_scored(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs jinja2: pip install"):
        jem_tf.score("runs/none", "none.csv", tmp_path / "a.csv", report=True)


def test_a_class_drifts_if_its_p_values_are_small():
    rng = np.random.default_rng(0)
    for scale, expected in ((1.0, False), (0.6, True)):
        counts = np.histogram(scale * rng.uniform(size=1000), 20, (0, 1))[0]
        assert has_drifted(ClassFindings(1000, 50, counts)) is expected


def test_memory_of_findings_is_bounded():
    import pyarrow as pa

    from jem_tf.scoring.batches import schema

    rows = 5000
    columns = {
        "id": [str(i) for i in range(rows)],
        "class": ["a"] * rows,
        **dict.fromkeys(("probability", "energy", "p_value"), np.linspace(0, 1, rows)),
        "ood_score": np.arange(rows, 0, -1.0),
        "is_ood": [False] * rows,
        "label": ["b"] * rows,
        "error": [f"reason {i}" if i % 2 else None for i in range(rows)],
    }
    findings = Findings()
    findings.add(pa.table(columns, schema=schema()))
    assert len(findings.strangest) == len(findings.label_errors) == LARGEST
    assert len(findings.reasons) == LARGEST and findings.errors == rows // 2
    assert findings.strangest[0][1] == rows - 2  # the lowest score without an error
    assert findings.label_errors[0][0] == pytest.approx(1.0, abs=1e-3)
