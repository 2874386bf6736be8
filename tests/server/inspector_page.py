"""What a user does with the inspector's page, and a server that can stop and return."""

import contextlib
import random
import socket
import time

from selenium.webdriver.common.action_chains import ActionChains

from jem_tf.server import Options
from jem_tf.server.serving import ModelServer

DIGITS = {  # strokes in a square of 256 pixels
    2: [[(80, 80), (110, 45), (160, 60), (160, 105), (80, 210), (180, 210)]],
    4: [[(120, 45), (75, 140), (185, 140)], [(150, 90), (150, 215)]],
    7: [[(70, 50), (180, 50), (110, 215)]],
}
SCRIBBLE = [[(20, 20), (230, 60), (30, 90), (230, 130), (20, 170), (235, 200), (30, 235)] * 2]
SCRIBBLE.append([(y, x) for x, y in SCRIBBLE[0]])


def free_pair():
    """The first of two free ports below the ephemeral ones, which other programs take."""
    while True:
        port = random.randrange(20_000, 30_000, 2)
        with contextlib.suppress(OSError):
            for number in (port, port + 1):
                socket.create_server(("127.0.0.1", number)).close()
            return port


class RestartableServer:
    """A server in this process that keeps its ports when it restarts."""

    def __init__(self, config):
        port = free_pair()
        self.url = f"http://127.0.0.1:{port + 1}"
        self._options = Options(
            model_config_file=config,
            port=port,
            rest_api_port=port + 1,
            enable_batching=True,
            enable_model_warmup=False,  # most signatures are not used
            drain_seconds=1.0,
        )

    def start(self):
        self._server = ModelServer(self._options)
        self._server.start()

    def stop(self):
        self._server.stop()


class Page:
    """The page in a browser."""

    def __init__(self, browser, url):
        self.browser, self.url = browser, url
        self.resize(1280)
        browser.get(url)
        self.wait(lambda: "Connected" in self.text("connection"))

    def resize(self, width):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def set_latency(self, milliseconds):
        """Delay the responses of the server."""
        conditions = {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
        self.browser.execute_cdp_cmd("Network.enable", {})
        self.browser.execute_cdp_cmd(
            "Network.emulateNetworkConditions", {**conditions, "latency": milliseconds}
        )

    def find(self, name):
        return self.browser.find_element("id", name)

    def text(self, name):
        return self.run("return document.getElementById(arguments[0]).textContent", name)

    def run(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def wait(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, (self.text("problem"), self.text("verdict"))
            time.sleep(0.02)

    def click(self, name):
        self.find(name).click()

    def select_model(self, name):
        script = "const s = document.getElementById('model'); s.value = arguments[0];"
        self.run(script + "s.dispatchEvent(new Event('change'))", name)
        self.wait(lambda: name in self.text("connection"))

    def num_answers(self):
        return int(self.run("return document.body.dataset.answers ?? 0"))

    def num_requests(self):
        names = "performance.getEntriesByType('resource').map(e => e.name)"
        return self.run(f"return {names}.filter(n => n.endsWith(':predict')).length")

    def is_pending(self):
        return self.run("return 'pending' in document.body.dataset")

    def answer_after(self, action):
        """Return verdict and explanation when the input that `action` makes is answered."""
        before = self.num_answers()
        action()
        self.wait(lambda: self.num_answers() > before and not self.is_pending())
        return self.text("verdict"), self.text("explanation")

    def best_class(self):
        return self.run("return document.querySelector('#bars .best th').textContent")

    def seen_pixels(self):
        """Return the RGBA values of the input as the model sees it."""
        return self.run("""const c = document.getElementById('seen');
            return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]""")

    def draw(self, lines, milliseconds=20):
        """Draw lines after clearing the area; each move of the pointer takes `milliseconds`."""
        canvas = self.find("canvas")
        half = canvas.size["width"] / 2
        self.click("clear")
        pointer = ActionChains(self.browser, duration=milliseconds)
        for line in lines:
            first, *rest = [tuple(int(v / 128 * half - half) for v in point) for point in line]
            pointer.move_to_element_with_offset(canvas, *first).click_and_hold()
            for point in rest:
                pointer.move_to_element_with_offset(canvas, *point)
            pointer.release()
        pointer.perform()
        time.sleep(0.1)  # the browser delivers the last moves with the next frame

    def errors(self):
        """Return the new messages of the console."""
        return [entry["message"] for entry in self.browser.get_log("browser")]
