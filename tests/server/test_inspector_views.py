"""The inspector in a browser: its tabs, other models and versions, accessibility, privacy."""

import json
import shutil
from pathlib import Path

import axe_core_python
import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from jem_tf.client import JEMClient
from jem_tf.saved_model import layout

from .inspector_page import SCRIBBLE


@pytest.mark.slow
def test_the_page_reconnects_to_a_server_that_restarts(page, inspector_server):
    page.answer_after(lambda: page.click("noise"))
    inspector_server.stop()
    try:
        page.click("noise")
        page.wait(lambda: "does not answer" in page.text("problem"))
        assert "trying again" in page.text("connection")
        before = page.num_answers()
    finally:
        inspector_server.start()
    page.wait(lambda: page.num_answers() > before)
    assert "Connected" in page.text("connection") and not page.find("problem").is_displayed()
    page.errors()  # the browser itself reports connections that are refused


def test_why_shows_the_gradient_and_a_path_to_the_data(page):
    page.answer_after(lambda: page.draw(SCRIBBLE))
    page.click("tab-why")
    page.wait(lambda: page.run("return document.querySelectorAll('#strip li').length") == 6)
    assert "after 50 steps" in page.text("strip")
    width, num_colours = page.run("""const c = document.querySelectorAll('#heat canvas')[1];
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return [c.width, new Set(d).size]""")
    assert width == 8 and num_colours > 20
    assert "Before" in page.text("compare") and "After" in page.text("compare")
    assert page.errors() == []


def test_the_same_seed_gives_the_same_dreams(page):
    page.click("tab-dream")
    pictures = "return [...document.querySelectorAll('#dreams canvas')].map(c => c.toDataURL())"

    def dream(seed):
        page.run("document.getElementById('dream-seed').value = arguments[0]", seed)
        page.browser.find_element("css selector", "#dream-form button").click()
        page.wait(lambda: "10 samples in" in page.text("dream-text"))
        page.wait(lambda: f"seed {seed}" in page.text("dream-text"))
        return page.run(pictures)

    first, second, repeated = dream(1), dream(2), dream(1)
    assert len(first) == 10 and first == repeated and first != second
    assert page.errors() == []


def test_status_shows_live_traffic_and_measurements(page, inspector_server):
    page.click("tab-status")
    page.wait(lambda: "AVAILABLE" in page.text("versions"))
    page.wait(lambda: "requests so far" in page.text("live"))
    with JEMClient(inspector_server.url, "digits") as client:
        client.predict(np.random.default_rng(0).uniform(-1, 1, (8, 8, 8, 1)))
    page.wait(lambda: page.run("return document.querySelector('#history svg') !== null"))
    for word in ("latency, p99", "rows per batch", "out of distribution"):
        assert word in page.text("live")
    assert "Accuracy" in page.text("measured") and "interpolations" in page.text("measured")
    assert "0.750" in page.text("measured")
    assert page.errors() == []


def test_a_new_version_is_noticed_and_the_input_stays(page, renamed):
    page.select_model("renamed")
    page.find("numbers").send_keys("[2.0, 2.1]")
    page.answer_after(lambda: page.click("send"))
    temporary = Path(shutil.copytree(renamed / "1", renamed / ".2"))
    facts = layout.read_metadata(temporary)
    facts["class_names"][1] = "new name"
    (temporary / layout.METADATA).write_text(json.dumps(facts))
    temporary.rename(renamed / "2")
    page.click("tab-status")
    page.wait(lambda: "2AVAILABLE" in page.text("versions"))
    page.wait(lambda: "1AVAILABLE" not in page.text("versions"))
    page.click("tab-try")
    page.answer_after(lambda: page.click("send"))
    assert page.text("verdict") == "new name" and "version 2" in page.text("connection")
    page.errors()  # the browser itself reports the request to the unloaded version


def test_without_calibration_nothing_is_claimed(page):
    page.select_model("uncalibrated")
    page.find("numbers").send_keys("[3.0, 3.0]")
    _, explanation = page.answer_after(lambda: page.click("send"))
    assert "not known" in explanation and "like the training data:" not in explanation
    assert not page.find("gauge-title").is_displayed()
    assert page.text("bars-title") == "Probabilities"


def test_models_of_other_tools_have_a_status_only(page):
    page.select_model("judge")
    page.wait(lambda: "AVAILABLE" in page.text("versions"))
    page.wait(lambda: "requests so far" in page.text("live"))  # the message outlasts a poll
    assert "was not exported by jem_tf" in page.text("problem")
    assert not page.find("tab-try").is_enabled()
    page.select_model("digits")
    page.click("tab-try")
    assert not page.find("problem").is_displayed()
    page.answer_after(lambda: page.click("noise"))
    assert page.errors() == []


def test_everything_works_by_keyboard(page):
    canvas = page.find("canvas")
    keys = [Keys.SHIFT, *[Keys.ARROW_DOWN] * 6, Keys.SHIFT]
    page.answer_after(lambda: canvas.send_keys(*keys))
    assert "from the left" in canvas.get_attribute("aria-label")
    page.find("tab-try").send_keys(Keys.ARROW_RIGHT)
    assert page.find("why").is_displayed() and not page.find("try").is_displayed()
    page.browser.switch_to.active_element.send_keys(Keys.END)
    assert page.find("status").is_displayed()


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(375, "light"), (1280, "dark"), pytest.param(1280, "light", marks=pytest.mark.slow)],
)
def test_accessible_on_phones_and_desktops(page, width, scheme):
    axe = Path(axe_core_python.__file__).parent / "axe.min.js"
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    page.resize(width)
    page.run(axe.read_text())
    page.answer_after(lambda: page.click("noise"))
    check = "const done = arguments[0]; axe.run().then(r => done(r.violations))"
    for tab in ("try", "why", "dream", "status"):
        page.click(f"tab-{tab}")
        if tab == "why":
            page.wait(lambda: "After" in page.text("compare"))
        if tab == "status":
            page.wait(lambda: "latency" in page.text("live"))
        violations = page.browser.execute_async_script(check)
        assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []
        overflow = "return document.documentElement.scrollWidth - window.innerWidth"
        assert page.run(overflow) <= 0
    assert page.errors() == []


def test_the_page_contacts_no_other_site_and_stores_nothing(page, inspector_server):
    page.answer_after(lambda: page.click("noise"))
    for entry in page.browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            assert url.startswith((inspector_server.url, "data:", "chrome"))
    assert page.run("return document.cookie") == "" and page.browser.get_cookies() == []
