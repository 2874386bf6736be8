"""The inspector in a browser: inputs of all kinds, and their answers."""

import time

import numpy as np
import pytest
import tensorflow as tf

from jem_tf import data
from jem_tf.client import JEMClient

from .inspector_models import HOSTILE
from .inspector_page import DIGITS, SCRIBBLE


@pytest.mark.parametrize("digit", DIGITS)
def test_a_drawn_digit_is_recognised_and_not_flagged(page, digit):
    verdict, explanation = page.answer_after(lambda: page.draw(DIGITS[digit]))
    assert verdict == str(digit) and "like the training data" in explanation
    assert page.errors() == []


def test_inputs_that_are_no_digits_are_flagged(page):
    for action in (lambda: page.draw(SCRIBBLE), lambda: page.click("noise")):
        verdict, explanation = page.answer_after(action)
        assert verdict == "Not like anything this model was trained on"
        assert "do not rely on that" in explanation
    assert page.errors() == []


def test_examples_have_the_label_of_their_class(page):
    buttons = page.browser.find_elements("css selector", "#examples button")
    assert [button.text for button in buttons] == [str(i) for i in range(10)]
    num_correct = 0
    for i, button in enumerate(buttons):
        page.answer_after(button.click)
        num_correct += page.best_class() == str(i)
    assert num_correct >= 8  # after a short training


def test_an_uploaded_file_is_answered_as_the_server_would(page, inspector_server, tmp_path):
    """The browser does not change the pixels of an image that has the model's size."""
    x, y = data.load("digits").arrays("test", 1)
    file = tmp_path / "digit.png"
    pixels = np.round((x[0] + 1) * 127.5).astype(np.uint8)
    file.write_bytes(tf.io.encode_png(pixels).numpy())
    page.answer_after(lambda: page.find("file").send_keys(str(file)))
    with JEMClient(inspector_server.url, "digits") as client:
        predictions = client.predict_images([file])
    assert page.best_class() == predictions.class_name[0] == str(y[0])
    assert float(page.text("energy")) == pytest.approx(predictions.energy[0], abs=0.006)  # rounded
    seen = np.reshape(page.seen_pixels(), (8, 8, 4))[..., :1]
    np.testing.assert_allclose(seen, pixels, atol=1)


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_images_are_dropped_and_pasted(page, way):
    """The image is a white square on black, as a file in the event."""
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
    page.answer_after(lambda: page.browser.execute_async_script(script, way))
    expected = np.zeros((8, 8))
    expected[2:6, 2:6] = 255
    seen = np.reshape(page.seen_pixels(), (8, 8, 4))
    np.testing.assert_allclose(seen[..., 0], expected, atol=1)
    assert page.errors() == []


def test_a_file_that_is_no_image_is_reported_as_text(page, tmp_path):
    file = tmp_path / "<b>no<b>.png"
    file.write_bytes(b"nothing")
    page.find("file").send_keys(str(file))
    page.wait(lambda: "not an image" in page.text("problem"))
    assert "<b>no<b>.png" in page.text("problem")
    assert page.run("return document.querySelector('#problem b')") is None


def test_answers_arrive_while_drawing(page):
    """The median latency that the page measures is below 150 ms, also on a busy machine."""
    page.run("""const latency = document.getElementById('latency');
        window.times = [];
        new MutationObserver(() => times.push(parseFloat(latency.textContent)))
            .observe(latency, {childList: true})""")
    before = page.num_answers()
    page.answer_after(lambda: page.draw(SCRIBBLE, milliseconds=40))
    assert page.num_answers() - before > 5 and np.median(page.run("return times")) < 150


def test_slow_answers_do_not_queue_up(page):
    """With a latency of 300 ms, answers arrive while drawing, one at a time, and the last wins."""
    page.set_latency(300)
    try:
        start, requests, answers = time.monotonic(), page.num_requests(), page.num_answers()
        page.draw(SCRIBBLE, milliseconds=80)
        seconds = time.monotonic() - start
        assert seconds > 2 and page.num_answers() - answers >= seconds / 1.5
        verdict, _ = page.answer_after(lambda: page.draw(DIGITS[7], milliseconds=5))
        assert page.num_requests() - requests <= (time.monotonic() - start) / 0.3 + 2
        assert verdict == "7"
    finally:
        page.set_latency(0)


def test_numbers_are_typed_and_class_names_are_text(page):
    page.select_model("table")
    assert not page.find("picture").is_displayed()
    box = page.find("numbers")
    box.send_keys("[1, 2, 3]")
    page.click("send")
    assert "takes 2 numbers" in page.text("problem") and "3 values" in page.text("problem")
    box.clear()
    box.send_keys("[2.0, 2.1]")
    verdict, _ = page.answer_after(lambda: page.click("send"))
    assert verdict == HOSTILE and not page.find("problem").is_displayed()
    for tab in ("why", "dream"):
        page.click(f"tab-{tab}")
    page.wait(lambda: HOSTILE in page.text("strip"))
    assert page.run("return document.querySelector('img')") is None
    assert page.errors() == []


def test_a_late_answer_of_another_model_is_dropped(page):
    page.set_latency(500)
    try:
        page.click("noise")
        page.select_model("table")
        page.wait(lambda: not page.is_pending())
        assert page.text("verdict") == "Type an input or choose an example."
        assert not page.find("answer").is_displayed() and not page.find("problem").is_displayed()
    finally:
        page.set_latency(0)
    assert page.errors() == []


def test_the_verdict_is_spoken_when_it_settles(page):
    page.answer_after(lambda: page.draw(DIGITS[7]))
    page.wait(lambda: page.text("spoken").startswith("7."))
    page.answer_after(lambda: page.click("noise"))
    page.wait(lambda: page.text("spoken").startswith("Not like anything"))
