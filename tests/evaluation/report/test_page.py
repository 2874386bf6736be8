"""The page of a report: complete, self-contained, and readable in a browser."""

import base64
import json
import shutil

import pytest

from jem_tf.evaluation import report

HEADINGS = (
    "All figures",
    "Classification",
    "Calibration",
    "Out-of-distribution inputs",
    "Robustness",
    "Samples",
    "Training",
)


@pytest.fixture
def metrics(report_directory):
    return json.loads((report_directory / "metrics.json").read_text())


def test_the_page_is_complete_and_self_contained(report_directory, metrics):
    page = (report_directory / "report.html").read_text()
    for heading in HEADINGS:
        assert f"<h2>{heading}</h2>" in page
    for _, values in report.rows(metrics):
        assert all(f"<td>{value}</td>" in page for value in values)
    assert "<script" not in page and 'src="http' not in page and 'href="http' not in page
    assert "url(http" not in page and "@import" not in page
    for name in ("reliability.svg", "attack_linf.svg", "samples.png", "chains.gif"):
        assert (report_directory / name).stat().st_size > 500


def test_names_from_outside_are_escaped(report_directory, metrics, tmp_path):
    """Class and file names are text, never markup."""
    markup = "<script>alert(1)</script>"
    metrics["class_names"] = [markup, "b"]
    metrics["models"] = dict(zip((markup, "other"), metrics["models"].values()))
    shutil.copytree(report_directory, tmp_path / "copy")
    page = report.write(tmp_path / "copy", metrics).read_text()
    assert "<script" not in page and "&lt;script&gt;" in page


def test_rollbacks_are_counted(metrics, tmp_path):
    name, model = next(iter(metrics["models"].items()))
    training = {**model["training"], "rollbacks": [0.0, 3.0]}
    metrics["models"] = {name: {"training": training}}
    page = report.write(tmp_path, metrics).read_text()
    assert "the guard rolled back (dotted lines): 3." in page


@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_fits_phones_and_desktops(browser, report_directory, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.get((report_directory / "report.html").as_uri())
    assert browser.get_log("browser") == []  # no errors, no warnings
    overflow = "return document.documentElement.scrollWidth - window.innerWidth"
    assert browser.execute_script(overflow) <= 0
    broken = "return [...document.images].filter(i => !i.naturalWidth).length"
    assert browser.execute_script(broken) == 0
    size = "return parseFloat(getComputedStyle(document.querySelector('.answers p')).fontSize)"
    assert browser.execute_script(size) >= 14


def test_the_page_requests_nothing_and_can_be_printed(browser, report_directory):
    browser.get_log("performance")
    browser.get((report_directory / "report.html").as_uri())
    events = [json.loads(e["message"])["message"] for e in browser.get_log("performance")]
    urls = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    assert urls and all(url.startswith(("file:", "data:")) for url in urls)
    pdf = browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.7})
    pages = base64.b64decode(pdf["data"]).count(b"/Type /Page\n")
    assert 3 <= pages <= 14
