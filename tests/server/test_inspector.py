"""The inspector as a person uses it, in a real browser."""

import dataclasses
import json
import shutil
import time
from pathlib import Path

import axe_core_python
import keras
import numpy as np
import pytest
import tensorflow as tf

import jem_tf
from jem_tf import data
from jem_tf.training import recipes
from jem_tf.training import run as training
from jem_tf.training import run_directory as runs

from .person import Page, Process

HOSTILE = "<img src=x onerror=alert(1)>"
DIGITS = {  # in a square of 256
    2: [[(80, 80), (110, 45), (160, 60), (160, 105), (80, 210), (180, 210)]],
    4: [[(120, 45), (75, 140), (185, 140)], [(150, 90), (150, 215)]],
    7: [[(70, 50), (180, 50), (110, 215)]],
}
SCRIBBLE = [[(20, 20), (230, 60), (30, 90), (230, 130), (20, 170), (235, 200), (30, 235)] * 2]
SCRIBBLE.append([(y, x) for x, y in SCRIBBLE[0]])


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A short training on digits, exported; four epochs do for drawings."""
    place = tmp_path_factory.mktemp("digits")
    recipe = dataclasses.replace(recipes.get("digits"), epochs=4)
    source = {"dataset": "digits", "data_dir": None, "image_size": None}
    training.train(data.load("digits"), recipe, place / "run", source=source, verbose=0)
    runs.export_run(place / "run", place / "digits", sample_steps=20)
    return place / "digits"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A model of two numbers, with a class name that would like to be HTML."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = (rng.normal(size=(200, 2)) * 0.3 + 2.0 * y[:, None]).astype(np.float32)
    backbone = keras.Sequential([keras.Input((2,)), keras.layers.Dense(8, "silu")])
    backbone.add(keras.layers.Dense(2))
    model = jem_tf.JEM(backbone, sampler=jem_tf.SGLD(2), seed=0)
    model.compile(keras.optimizers.Adam(1e-2))
    model.fit(x, y, epochs=5, verbose=0)
    place = tmp_path_factory.mktemp("table")
    options = {"class_names": ("low", HOSTILE), "sample_steps": 2}
    jem_tf.export(model, place / "table", calibrate=(x, y), **options)
    jem_tf.export(model, place / "uncalibrated", **options)
    return place / "table"


@pytest.fixture(scope="module")
def server(digits, table, rules, tmp_path_factory):
    models = "".join(
        f'config {{ name: "{path.name}" base_path: "{path}" model_platform: "tensorflow" }}\n'
        for path in (digits, table, table.parent / "uncalibrated", rules)
    )
    config = tmp_path_factory.mktemp("config") / "models.config"
    config.write_text(f"model_config_list {{\n{models}}}")
    process = Process(config)
    process.start()
    yield process
    process.kill()


@pytest.fixture
def page(browser, server):
    page = Page(browser, server.url)
    page.errors()  # of pages before
    yield page
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("digit", DIGITS)
def test_a_drawn_digit_is_recognised_and_not_flagged(page, digit):
    verdict, explanation = page.after(lambda: page.draw(DIGITS[digit]))
    assert verdict == str(digit) and "like the training data" in explanation
    assert page.errors() == []


def test_what_is_no_digit_is_flagged(page):
    for action in (lambda: page.draw(SCRIBBLE), lambda: page.click("noise")):
        verdict, explanation = page.after(action)
        assert verdict == "Not like anything this model was trained on"
        assert "do not rely on that" in explanation
    assert page.errors() == []


def test_examples_are_what_they_are_called(page):
    buttons = page.browser.find_elements("css selector", "#examples button")
    assert [button.text for button in buttons] == [str(i) for i in range(10)]
    right = 0
    for i, button in enumerate(buttons):
        page.after(button.click)
        best = page.run("return document.querySelector('#bars .most th').textContent")
        right += best == str(i)
    assert right >= 8  # four epochs of training


def test_an_uploaded_file_is_answered_as_the_server_would(page, server, tmp_path):
    """The browser's resizing of a picture of the model's own size changes nothing."""
    x, y = data.load("digits").arrays("test", 1)
    file = tmp_path / "digit.png"
    pixels = np.round((x[0] + 1) * 127.5).astype(np.uint8)
    file.write_bytes(tf.io.encode_png(pixels).numpy())
    page.after(lambda: page.find("file").send_keys(str(file)))
    shown = page.run("return document.querySelector('#bars .most th').textContent")
    with jem_tf.client.JEMClient(server.url, "digits") as client:
        found = client.predict_images([file])
    assert shown == found.class_name[0] == str(y[0])
    assert float(page.text("energy")) == pytest.approx(found.energy[0], abs=0.006)  # it rounds
    script = """const c = document.getElementById('seen');
        return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"""
    seen = np.reshape(page.run(script), (8, 8, 4))[..., :1]
    np.testing.assert_allclose(seen, pixels, atol=1)


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_images_are_dropped_and_pasted(page, way):
    """A white square in the middle of black, as a file that a browser hands over."""
    script = """const done = arguments[1], c = document.createElement('canvas');
        c.width = c.height = 8;
        const pen = c.getContext('2d');
        pen.fillRect(0, 0, 8, 8);
        pen.fillStyle = '#fff';
        pen.fillRect(2, 2, 4, 4);
        c.toBlob(blob => {
            const data = new DataTransfer();
            data.items.add(new File([blob], 'square.png', {type: 'image/png'}));
            document.dispatchEvent(arguments[0] === 'drop'
                ? new DragEvent('drop', {dataTransfer: data, cancelable: true})
                : new ClipboardEvent('paste', {clipboardData: data}));
            done();
        })"""
    page.after(lambda: page.browser.execute_async_script(script, way))
    seen = page.run("""const c = document.getElementById('seen');
        return [...c.getContext('2d').getImageData(0, 0, 8, 8).data]""")
    expected = np.zeros((8, 8))
    expected[2:6, 2:6] = 255
    np.testing.assert_allclose(np.reshape(seen, (8, 8, 4))[..., 0], expected, atol=1)
    assert page.errors() == []


def test_a_file_that_is_no_image_is_named_as_text(page, tmp_path):
    file = tmp_path / "<b>no<b>.png"
    file.write_bytes(b"nothing")
    page.find("file").send_keys(str(file))
    page.wait(lambda: "not an image" in page.text("problem"))
    assert "<b>no<b>.png" in page.text("problem")
    assert page.run("return document.querySelector('#problem b')") is None


def test_answers_come_while_drawing_in_time(page):
    """Under 150 ms in the middle, as the page measures it, on a machine with other work too."""
    watch = """const shown = document.getElementById('latency');
        window.times = [];
        new MutationObserver(() => times.push(parseFloat(shown.textContent)))
            .observe(shown, {childList: true})"""
    page.run(watch)
    before = page.answers()
    page.after(lambda: page.draw(SCRIBBLE))
    assert page.answers() - before > 5 and np.median(page.run("return times")) < 150


def test_slow_answers_do_not_queue_up(page):
    """With 300 ms for each answer, answers still come while drawing, one at a time, the last one
    at last."""
    slow = {"offline": False, "latency": 300, "downloadThroughput": -1, "uploadThroughput": -1}
    page.browser.execute_cdp_cmd("Network.enable", {})
    page.browser.execute_cdp_cmd("Network.emulateNetworkConditions", slow)
    try:
        begin, before, answers = time.monotonic(), page.asked(), page.answers()
        page.draw(SCRIBBLE, milliseconds=100)
        seconds = time.monotonic() - begin
        assert seconds > 2 and page.answers() - answers >= seconds / 1.5
        verdict, _ = page.after(lambda: page.draw(DIGITS[7], milliseconds=5), quiet=1.0)
        assert page.asked() - before <= (time.monotonic() - begin) / 0.3 + 2
        assert verdict == "7"
    finally:
        slow["latency"] = 0
        page.browser.execute_cdp_cmd("Network.emulateNetworkConditions", slow)


def test_a_server_that_goes_and_returns(page, server):
    page.after(lambda: page.click("noise"))
    server.kill()
    try:
        page.click("noise")
        page.wait(lambda: "does not answer" in page.text("problem"))
        assert "trying again" in page.text("connection")
        before = page.answers()
    finally:
        server.start()
    page.wait(lambda: page.answers() > before)
    assert "Connected" in page.text("connection") and not page.find("problem").is_displayed()
    page.errors()  # those of a server that is not there, which browsers report by themselves


def test_why_shows_the_slope_and_a_path_to_the_data(page):
    page.after(lambda: page.draw(SCRIBBLE))
    page.click("tab-why")
    page.wait(lambda: page.run("return document.querySelectorAll('#strip li').length") == 6)
    assert "after 50 steps" in page.text("strip")
    colours = """const c = document.querySelectorAll('#heat canvas')[1];
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return [c.width, new Set(d).size]"""
    width, several = page.run(colours)
    assert width == 8 and several > 20
    assert "Before" in page.text("compare") and "After" in page.text("compare")
    assert page.errors() == []


def test_the_same_seed_dreams_the_same(page):
    page.click("tab-dream")
    pictures = "return [...document.querySelectorAll('#dreams canvas')].map(c => c.toDataURL())"

    def dream(seed):
        page.run("document.getElementById('dream-seed').value = arguments[0]", seed)
        page.browser.find_element("css selector", "#dream-form button").click()
        page.wait(lambda: "10 samples in" in page.text("dream-text"))
        page.wait(lambda: f"seed {seed}" in page.text("dream-text"))
        return page.run(pictures)

    first, second, again = dream(1), dream(2), dream(1)
    assert len(first) == 10 and first == again and first != second
    assert page.errors() == []


def test_status_shows_live_traffic_and_what_was_measured(page, server):
    page.click("tab-status")
    page.wait(lambda: "AVAILABLE" in page.text("versions"))
    page.wait(lambda: "requests so far" in page.text("live"))
    with jem_tf.client.JEMClient(server.url, "digits") as client:
        client.predict(np.random.default_rng(0).uniform(-1, 1, (8, 8, 8, 1)))
    page.wait(lambda: page.run("return document.querySelector('#history svg') !== null"))
    for word in ("latency, p99", "rows a batch", "out of distribution"):
        assert word in page.text("live")
    assert "Accuracy" in page.text("measured") and "interpolations" in page.text("measured")
    assert page.errors() == []


def test_vectors_are_pasted_and_names_are_text(page):
    page.choose("table")
    assert not page.find("picture").is_displayed()
    box = page.find("numbers")
    box.send_keys("[1, 2, 3]")
    page.click("send")
    assert "takes 2 numbers" in page.text("problem") and "3 values" in page.text("problem")
    box.clear()
    box.send_keys("[2.0, 2.1]")
    verdict, _ = page.after(lambda: page.click("send"))
    assert verdict == HOSTILE and not page.find("problem").is_displayed()
    for tab in ("why", "dream"):
        page.click(f"tab-{tab}")
    page.wait(lambda: HOSTILE in page.text("strip"))
    assert page.run("return document.querySelector('img')") is None
    assert page.errors() == []


def test_a_late_answer_is_not_taken_for_another_models(page):
    slow = {"offline": False, "latency": 500, "downloadThroughput": -1, "uploadThroughput": -1}
    page.browser.execute_cdp_cmd("Network.enable", {})
    page.browser.execute_cdp_cmd("Network.emulateNetworkConditions", slow)
    try:
        page.click("noise")
        page.choose("table")
        time.sleep(1.0)
        assert page.text("verdict") == "Draw something, or take an example."
        assert not page.find("answer").is_displayed() and not page.find("problem").is_displayed()
    finally:
        slow["latency"] = 0
        page.browser.execute_cdp_cmd("Network.emulateNetworkConditions", slow)
    assert page.errors() == []


def test_a_new_version_is_noticed_and_the_input_stays(page, table):
    page.choose("table")
    page.find("numbers").send_keys("[2.0, 2.1]")
    page.after(lambda: page.click("send"))
    shutil.copytree(table / "1", table / ".2")
    facts = json.loads((table / ".2" / "assets.extra" / "jem.json").read_text())
    facts["class_names"][1] = "renamed"
    (table / ".2" / "assets.extra" / "jem.json").write_text(json.dumps(facts))
    (table / ".2").rename(table / "2")
    page.click("tab-status")
    page.wait(lambda: "2AVAILABLE" in page.text("versions"))
    page.wait(lambda: "1AVAILABLE" not in page.text("versions"))
    page.click("tab-try")
    page.after(lambda: page.click("send"))
    assert page.text("verdict") == "renamed" and "version 2" in page.text("connection")
    page.errors()  # the browser's own, for the version that is no more


def test_without_calibration_nothing_is_claimed(page):
    page.choose("uncalibrated")
    page.find("numbers").send_keys("[3.0, 3.0]")
    _, explanation = page.after(lambda: page.click("send"))
    assert "not known" in explanation and "like the training data:" not in explanation
    assert not page.find("gauge-title").is_displayed()
    assert page.text("bars-title") == "Probabilities"


def test_models_of_other_tools_have_a_status_only(page):
    page.choose("rules")
    assert "was not exported by jem_tf" in page.text("problem")
    page.wait(lambda: "AVAILABLE" in page.text("versions"))
    assert not page.find("tab-try").is_enabled()
    page.choose("digits")
    page.click("tab-try")
    assert not page.find("problem").is_displayed()
    page.after(lambda: page.click("noise"))
    assert page.errors() == []


def test_what_is_heard_is_what_is_seen(page):
    page.after(lambda: page.draw(DIGITS[7]))
    page.wait(lambda: page.text("spoken").startswith("7."))
    page.after(lambda: page.click("noise"))
    page.wait(lambda: page.text("spoken").startswith("Not like anything"))


def test_everything_works_by_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    canvas = page.find("canvas")
    page.after(lambda: canvas.send_keys(Keys.SHIFT, *[Keys.ARROW_DOWN] * 6, Keys.SHIFT))
    assert "from the left" in canvas.get_attribute("aria-label")
    page.find("tab-try").send_keys(Keys.ARROW_RIGHT)
    assert page.find("why").is_displayed() and not page.find("try").is_displayed()
    page.browser.switch_to.active_element.send_keys(Keys.END)
    assert page.find("status").is_displayed()


@pytest.mark.parametrize(("width", "scheme"), [(375, "light"), (1280, "dark"), (1280, "light")])
def test_accessible_on_phones_and_desktops(page, width, scheme):
    axe = Path(axe_core_python.__file__).parent / "axe.min.js"
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    page.size(width)
    page.run(axe.read_text())
    page.after(lambda: page.click("noise"))
    check = "const done = arguments[0]; axe.run().then(r => done(r.violations))"
    for tab in ("try", "why", "dream", "status"):
        page.click(f"tab-{tab}")
        if tab == "why":
            page.wait(lambda: "After" in page.text("compare"))
        if tab == "status":
            page.wait(lambda: "latency" in page.text("live"))
        found = page.browser.execute_async_script(check)
        assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []
        over = "return document.documentElement.scrollWidth - window.innerWidth"
        assert page.run(over) <= 0
    assert page.errors() == []


def test_nothing_is_asked_of_others_or_kept(page, server):
    page.after(lambda: page.click("noise"))
    for entry in page.browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            assert message["params"]["request"]["url"].startswith((server.url, "data:", "chrome"))
    assert page.run("return document.cookie") == "" and page.browser.get_cookies() == []
