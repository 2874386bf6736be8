"""A server that can go and return, and a person before its page."""

import random
import subprocess
import sys
import time


class Process:
    """`jem-tf serve` at ports that stay the same."""

    def __init__(self, config):
        self.grpc = random.randrange(20_000, 30_000, 2)  # where nobody else takes it meanwhile
        self.rest = self.grpc + 1
        self.url, self._config = f"http://127.0.0.1:{self.rest}", config

    def start(self):
        flags = [f"--port={self.grpc}", f"--rest-api-port={self.rest}"]
        command = [sys.executable, "-m", "jem_tf", "serve", f"--model-config-file={self._config}"]
        self._process = subprocess.Popen(
            [*command, *flags, "--enable-batching"], stdout=subprocess.PIPE, text=True
        )
        assert "a page to try it at" in self._process.stdout.readline()

    def kill(self):
        self._process.kill()
        self._process.wait()


class Page:
    """What a person does with the page, and what they read."""

    def __init__(self, browser, url):
        self.browser, self.url = browser, url
        self.size(1280)
        browser.get(url)
        self.wait(lambda: "Connected" in self.text("connection"))

    def size(self, width):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def find(self, name):
        return self.browser.find_element("id", name)

    def text(self, name):
        return self.run("return document.getElementById(arguments[0]).textContent", name)

    def run(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def wait(self, ready, seconds=30):
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, (self.text("problem"), self.text("verdict"))
            time.sleep(0.05)

    def click(self, name):
        self.find(name).click()

    def choose(self, name):
        script = "const s = document.getElementById('model'); s.value = arguments[0];"
        self.run(script + "s.dispatchEvent(new Event('change'))", name)
        self.wait(lambda: name in self.text("connection"))

    def answers(self):
        return int(self.run("return document.body.dataset.answers ?? 0"))

    def after(self, action, quiet=0.3):
        """What it says when it has answered, and no more answers come."""
        before = self.answers()
        action()
        self.wait(lambda: self.answers() > before)
        known = None
        while known != self.answers():
            known = self.answers()
            time.sleep(quiet)
        return self.text("verdict"), self.text("explanation")

    def asked(self):
        names = "performance.getEntriesByType('resource').map(e => e.name)"
        return self.run(f"return {names}.filter(n => n.endsWith(':predict')).length")

    def draw(self, lines, milliseconds=20):
        from selenium.webdriver.common.action_chains import ActionChains

        canvas = self.find("canvas")
        half = canvas.size["width"] / 2
        self.click("clear")
        hand = ActionChains(self.browser, duration=milliseconds)
        for line in lines:
            first, *rest = [tuple(int(v / 128 * half - half) for v in point) for point in line]
            hand.move_to_element_with_offset(canvas, *first).click_and_hold()
            for point in rest:
                hand.move_to_element_with_offset(canvas, *point)
            hand.release()
        hand.perform()
        time.sleep(0.2)

    def errors(self):
        return [entry["message"] for entry in self.browser.get_log("browser")]
