"""The server's page in a real browser, driven through ChromeDriver (Debian: chromium, chromium-driver). Standard library
only. With --screenshots FOLDER it leaves pictures of the page there, light and dark. Skipped where there is no browser.
"""

import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import harness
from server_process import Server

DRIVER = shutil.which("chromedriver")
SCREENSHOTS = harness.taken_from_command_line("--screenshots")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element in WebDriver's answers
FLAGS = ["--headless=new", "--window-size=1280,900", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]


class Browser:
    """A headless browser, until the end of its `with`."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        port = None
        while port is None:
            line = self.driver.stdout.readline()
            assert line, "chromedriver ended"
            port = re.search(r"started successfully on port (\d+)", line)
        self.url = f"http://127.0.0.1:{port[1]}/session"
        options = {"args": [*FLAGS, f"--user-data-dir={self.folder.name}"]}
        session = self.call("POST", "", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}}})
        self.url += "/" + session["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call("DELETE", "")
        self.driver.kill()
        self.driver.wait()
        self.driver.stdout.close()
        self.folder.cleanup()

    def call(self, method, path, body=None):
        data = json.dumps(body or {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)["value"]

    def element(self, css):
        return self.call("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css):
        self.call("POST", f"/element/{self.element(css)}/click")

    def type(self, css, text):
        self.call("POST", f"/element/{self.element(css)}/value", {"text": text})

    def fill(self, css, text):
        self.call("POST", f"/element/{self.element(css)}/clear")
        self.type(css, text)

    def run(self, script):
        return self.call("POST", "/execute/sync", {"script": script, "args": []})

    def wait_for(self, script):
        """Waits until a script gives something that is true, and returns it."""
        for _ in range(1200):
            if result := self.run(script):
                return result
            time.sleep(0.05)
        raise AssertionError(f"still not true: {script}")

    def log(self, kind):
        return self.call("POST", "/se/log", {"type": kind})

    def emulate(self, command, **parameters):
        self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, name):
        if SCREENSHOTS:
            folder = pathlib.Path(SCREENSHOTS)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(base64.b64decode(self.call("GET", "/screenshot")))


@unittest.skipUnless(DRIVER, "no chromedriver: apt-get install chromium chromium-driver")
class PageCase(unittest.TestCase):
    ARGUMENTS = ()  # of the server

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.ARGUMENTS)
        cls.addClassCleanup(cls.server.__exit__)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    def setUp(self):
        self.address = f"http://{self.server.host}:{self.server.port}/"
        self.browser.call("POST", "/url", {"url": self.address})

    def wait_until_ready(self):
        self.browser.wait_for("return document.getElementById('health').textContent === 'ready'")

    def ask(self, text, tokens):
        self.browser.fill("#max_tokens", str(tokens))
        self.browser.type("#prompt", text + "\ue007")  # Enter

    def answers(self):
        return self.browser.run("return [...document.querySelectorAll('li.assistant span')].map((s) => s.textContent)")

    def wait_for_answer(self):
        self.browser.wait_for("return document.getElementById('stop').disabled && document.querySelector('li.assistant')")
        return self.answers()[-1]


class PageTest(PageCase):
    def setUp(self):
        super().setUp()
        self.wait_until_ready()
        self.browser.fill("#temperature", "0")

    def reply(self, messages, tokens):
        status, _, body = self.server.request("POST", "/v1/chat/completions", {
            "messages": messages, "temperature": 0, "max_tokens": tokens})
        self.assertEqual(status, 200, body)
        return body["choices"][0]["message"]["content"]

    def test_a_conversation_streams_and_goes_on(self):
        self.browser.run("window.changes = 0; new MutationObserver(() => ++window.changes)"
                         ".observe(document.getElementById('messages'), {childList: true, subtree: true})")
        messages = [{"role": "user", "content": "Once upon a time"}]
        self.ask(messages[0]["content"], 40)
        first = self.wait_for_answer()
        self.assertEqual(first, self.reply(messages, 40))
        self.assertGreater(self.browser.run("return window.changes"), 5)
        messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "Then a fox came."}]
        self.ask(messages[2]["content"], 20)
        self.browser.wait_for("return document.querySelectorAll('li.assistant').length === 2")
        self.assertEqual(self.wait_for_answer(), self.reply(messages, 20))
        self.browser.screenshot("light.png")
        self.browser.emulate("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.browser.screenshot("dark.png")
        self.browser.emulate("Emulation.setEmulatedMedia", features=[])

    def test_stop_keeps_what_came_and_regenerate_begins_anew(self):
        # A small model is done before WebDriver would click.
        self.browser.run("new MutationObserver((_, observer) => { if (document.querySelector('li.assistant span')?.textContent) {"
                         " observer.disconnect(); document.getElementById('stop').click(); } })"
                         ".observe(document.getElementById('messages'), {childList: true, subtree: true})")
        self.ask("Once upon a time", 400)
        stopped = self.wait_for_answer()
        whole = self.reply([{"role": "user", "content": "Once upon a time"}], 400)
        self.assertTrue(whole.startswith(stopped))
        self.assertLess(len(stopped), len(whole))
        self.browser.fill("#max_tokens", "30")
        self.browser.click("#regenerate")
        again = self.wait_for_answer()
        self.assertEqual(len(self.answers()), 1)
        self.assertEqual(again, self.reply([{"role": "user", "content": "Once upon a time"}], 30))
        self.browser.click("#clear")
        self.assertEqual(self.answers(), [])

    def test_the_charts_show_what_was_generated(self):
        self.ask("Once upon a time", 30)
        self.wait_for_answer()
        for chart in ("throughput", "steps"):
            self.browser.wait_for(f"return [...document.querySelectorAll('#{chart} polyline')].some((line) => "
                                  "new Set(line.getAttribute('points').split(' ').map((p) => p.split(',')[1])).size > 1)")
        self.assertIn("written", self.browser.run("return document.querySelector('#throughput figcaption').textContent"))

    def test_what_the_server_refuses_is_said(self):
        self.browser.fill("#temperature", "-1")
        self.ask("Once upon a time", 5)
        self.browser.wait_for("return document.getElementById('notice').textContent.includes('temperature')")
        self.assertEqual(self.answers(), [])
        self.browser.log("browser")  # the browser notes the refusal

    def test_a_phone_shows_it_without_scrolling_sideways(self):
        self.browser.emulate("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
        self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), 360)
        self.browser.screenshot("phone.png")
        self.browser.emulate("Emulation.clearDeviceMetricsOverride")

    def tearDown(self):
        errors = [entry["message"] for entry in self.browser.log("browser") if entry["level"] == "SEVERE"]
        self.assertEqual(errors, [])
        for entry in self.browser.log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                if not message["params"]["documentURL"].startswith("chrome:"):  # the browser's own page
                    url = message["params"]["request"]["url"]
                    self.assertTrue(url.startswith((self.address, "data:")), url)


class PageWithKeysTest(PageCase):
    ARGUMENTS = ("--api-key", "secret")

    def test_the_page_asks_for_the_key(self):
        self.browser.wait_for("return document.getElementById('access').open")
        self.assertEqual(self.browser.run("return document.getElementById('health').textContent"), "needs an API key")
        self.browser.fill("#key", "secret")
        self.wait_until_ready()
        self.ask("Once upon a time", 5)
        self.assertNotEqual(self.wait_for_answer(), "")


if __name__ == "__main__":
    if not DRIVER:
        print("no chromedriver: apt-get install chromium chromium-driver", file=sys.stderr)
        sys.exit(harness.SKIPPED)
    harness.main()
