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
FLAGS = [*harness.BROWSER_FLAGS, "--window-size=1280,900"]


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


SIZES = {"wide": (1280, 800), "phone": (390, 844)}

SCRIPT = {"token_ms": 15, "answers": [
    {"when": "reverses", "text": "Like **this**:\n\n```python\ndef turned(items):\n    return items[::-1]\n```\n\n1. It copies.\n2. It is short."},
    {"when": "animals", "text": "| Animal | Food | Speed |\n|---|---|---:|\n| Hare | grass | 70 |\n| Snail | leaves | 0.05 |\n"},
    {"when": "attack", "text":
        "<img src=x onerror=\"window.attacked = 1\"> <script>window.attacked = 2</script>\n\n"
        "[go](javascript:window.attacked=3) ![look](http://elsewhere.example/a.png)\n\n"
        "<svg onload=\"window.attacked = 4\"></svg>\n\n<style>body { display: none }</style>\n\n"
        "<form action=\"http://elsewhere.example\"><input name=a></form>"},
    {"when": "long", "text": "\n\n".join(f"Line {i} goes on." for i in range(60))},
    {"text": "It is noon, and it stays so for a while, as this is a long sentence that takes its time to come to an end."},
]}


@unittest.skipUnless(DRIVER, "no chromedriver: apt-get install chromium chromium-driver")
class PageCase(unittest.TestCase):
    ARGUMENTS = ()  # of the server

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="encore-page-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.server = Server(*cls.arguments(pathlib.Path(cls.folder.name)))
        cls.addClassCleanup(cls.server.__exit__)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.__exit__)

    @classmethod
    def arguments(cls, _folder):
        return cls.ARGUMENTS

    def setUp(self):
        self.refusals = 0
        self.address = f"http://{self.server.host}:{self.server.port}/"
        self.browser.call("POST", "/url", {"url": self.address})
        self.browser.run("localStorage.clear(); sessionStorage.clear()")
        self.reload()

    def tearDown(self):
        self.browser.emulate("Emulation.clearDeviceMetricsOverride")
        errors = [entry["message"] for entry in self.browser.log("browser") if entry["level"] == "SEVERE"]
        self.assertEqual(len(errors), self.refusals, errors)
        for entry in self.browser.log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                if not message["params"]["documentURL"].startswith("chrome:"):  # the browser's own page
                    url = message["params"]["request"]["url"]
                    self.assertTrue(url.startswith((self.address, "data:")), url)

    def reload(self):
        self.browser.call("POST", "/refresh")

    def wait_until_ready(self):
        self.browser.wait_for("return document.getElementById('health').textContent === 'ready'")

    def size(self, name):
        width, height = SIZES[name]
        self.browser.emulate("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=name == "phone")

    def set(self, name, text):
        """Fills a field, folded away or not, as a user would."""
        self.browser.run(f"const field = document.getElementById('{name}'); field.value = {json.dumps(str(text))};"
                         " field.dispatchEvent(new Event('input', {bubbles: true}))")

    def ask(self, text, tokens=None):
        if tokens is not None:
            self.set("max_tokens", tokens)
        self.browser.type("#prompt", text + "\ue007")  # Enter

    def answers(self):
        return self.browser.run("return conversation.filter((m) => m.role === 'assistant').map((m) => m.content)")

    def wait_for_answer(self):
        self.browser.wait_for("return document.getElementById('stop').disabled && document.querySelector('li.assistant')")
        return self.answers()[-1]

    def wait_for_notice(self):
        return self.browser.wait_for("return !document.getElementById('notice').hidden && document.getElementById('notice').textContent")

    def note(self):
        return self.browser.run("return [...document.querySelectorAll('.note')].at(-1)?.textContent ?? ''")

    def shown(self, css):
        """Whether an element lies wholly inside the window, and nothing lies over its middle."""
        return self.browser.run(
            f"const e = [...document.querySelectorAll({json.dumps(css)})].at(-1), r = e.getBoundingClientRect();"
            "const top = document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2);"
            "return r.height > 0 && r.top >= 0 && r.left >= 0 && r.bottom <= innerHeight && r.right <= innerWidth && e.contains(top)")

    def check_in_every_size(self, name, *shown):
        """These elements are in view in a window and on a phone; takes a picture of each, light and dark."""
        for size in SIZES:
            self.size(size)
            for css in shown:
                self.assertTrue(self.shown(css), f"{css} at {size}")
            self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth - innerWidth"), 0, size)
            for scheme in ("light", "dark"):
                self.browser.emulate("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                self.browser.screenshot(f"{name}-{size}-{scheme}.png")
            self.browser.emulate("Emulation.setEmulatedMedia", features=[])


class PageTest(PageCase):
    def setUp(self):
        super().setUp()
        self.wait_until_ready()

    def reply(self, messages, tokens):
        status, _, body = self.server.request("POST", "/v1/chat/completions", {
            "messages": messages, "temperature": 0, "max_tokens": tokens})
        self.assertEqual(status, 200, body)
        return body["choices"][0]["message"]["content"]

    def test_an_empty_page_says_what_can_be_asked(self):
        self.assertIn("stories", self.browser.run("return document.querySelector('#empty h2').textContent"))
        self.check_in_every_size("empty", "#empty h2", "#suggestions button", "#prompt", "#send")
        self.assertFalse(self.browser.run("return document.getElementById('sampling').open"))
        self.browser.click("#suggestions button")
        self.assertEqual(self.browser.run("return document.getElementById('prompt').value"), "Once upon a time")

    def test_a_conversation_streams_and_goes_on(self):
        self.browser.run("window.changes = 0; new MutationObserver(() => ++window.changes)"
                         ".observe(document.getElementById('messages'), {childList: true, subtree: true})")
        messages = [{"role": "user", "content": "Once upon a time"}]
        self.ask(messages[0]["content"], 40)
        first = self.wait_for_answer()
        self.assertEqual(first, self.reply(messages, 40))
        self.assertGreater(self.browser.run("return window.changes"), 1)
        messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "Then a fox came."}]
        self.ask(messages[2]["content"], 20)
        self.browser.wait_for("return document.querySelectorAll('li.assistant').length === 2")
        self.assertEqual(self.wait_for_answer(), self.reply(messages, 20))
        self.check_in_every_size("conversation", "li.assistant:last-child .foot")

    def test_an_answer_that_is_cut_says_so_and_how_fast_it_came(self):
        self.ask("Once upon a time", 30)
        self.wait_for_answer()
        self.assertEqual(self.note(), "cut at 30 tokens")
        self.assertRegex(self.browser.run("return document.querySelector('.usage').textContent"),
                         r"^\d+ tokens read, 30 written, [\d,.]+ tokens/s$")

    def test_a_request_has_only_the_parameters_that_were_changed(self):
        names = "return Object.keys(request()).sort().join(' ')"
        self.assertEqual(self.browser.run(names), "messages model stream stream_options")
        self.set("top_k", 5)
        self.assertEqual(self.browser.run(names), "messages model stream stream_options top_k")

    def test_stop_keeps_what_came_and_regenerate_begins_anew(self):
        # A small model is done before WebDriver would click.
        self.browser.run("new MutationObserver((_, observer) => { if (document.querySelector('li.assistant .text')?.textContent) {"
                         " observer.disconnect(); document.getElementById('stop').click(); } })"
                         ".observe(document.getElementById('messages'), {childList: true, subtree: true})")
        self.ask("Once upon a time", 400)
        stopped = self.wait_for_answer()
        whole = self.reply([{"role": "user", "content": "Once upon a time"}], 400)
        self.assertTrue(whole.startswith(stopped))
        self.assertLess(len(stopped), len(whole))
        self.assertEqual(self.note(), "stopped")
        self.set("max_tokens", 30)
        self.browser.click("#regenerate")
        again = self.wait_for_answer()
        self.assertEqual(len(self.answers()), 1)
        self.assertEqual(again, self.reply([{"role": "user", "content": "Once upon a time"}], 30))
        self.browser.click("#clear")
        self.assertEqual(self.answers(), [])

    def test_a_reload_keeps_conversation_and_settings(self):
        self.set("temperature", 0)
        self.set("system", "Be kind.")
        self.ask("Once upon a time", 25)
        answer = self.wait_for_answer()
        self.reload()
        self.assertEqual(self.answers(), [answer])
        self.assertEqual(self.note(), "cut at 25 tokens")
        self.assertEqual(self.browser.run("return [temperature, max_tokens, system].map((e) => e.value)"), ["0", "25", "Be kind."])
        self.assertTrue(self.browser.run("return document.getElementById('sampling').open"))
        self.browser.click("#clear")
        self.reload()
        self.assertEqual(self.answers(), [])

    def test_the_charts_show_what_was_generated(self):
        self.ask("Once upon a time", 30)
        self.wait_for_answer()
        for chart in ("throughput", "steps"):
            self.browser.wait_for(f"return [...document.querySelectorAll('#{chart} polyline')].some((line) => "
                                  "new Set(line.getAttribute('points').split(' ').map((p) => p.split(',')[1])).size > 1)")
        text = self.browser.run("return document.getElementById('throughput').textContent")
        self.assertRegex(text, r"written [\d,.]+ \(peak [\d,.]+\)")
        self.assertGreaterEqual(int(self.browser.run("return document.querySelector('#throughput .plot span').textContent.replaceAll(',', '')")), 10)
        self.browser.run("const b = throughput.getBoundingClientRect(); throughput.dispatchEvent("
                         "new PointerEvent('pointermove', {clientX: b.right - 1, clientY: b.top + 20}))")
        self.assertIn("0 s ago", self.browser.run("return document.querySelector('#throughput figcaption').textContent"))

    def test_what_the_server_refuses_is_said_and_what_was_written_stays(self):
        self.refusals = 1
        self.set("temperature", -1)
        self.ask("Once upon a time")
        self.assertIn("temperature", self.wait_for_notice())
        self.assertEqual(self.answers(), [])
        self.assertEqual(self.browser.run("return document.getElementById('prompt').value"), "Once upon a time")

    def test_a_phone_shows_the_settings_on_demand(self):
        self.size("phone")
        self.assertFalse(self.browser.run("return document.getElementById('side').offsetHeight > 0"))
        self.browser.click("#panel")
        self.assertTrue(self.browser.run("return document.getElementById('side').offsetHeight > 0"))
        self.browser.screenshot("settings-phone.png")
        self.browser.click("#panel")


class ScriptedPageTest(PageCase):
    """Answers that a small model would not give."""

    @classmethod
    def arguments(cls, folder):
        (folder / "script.json").write_text(json.dumps(SCRIPT))
        return "--model", f"scripted:{folder / 'script.json'}"

    def setUp(self):
        super().setUp()
        self.wait_until_ready()
        if not self.browser.run("return markdown !== null"):
            self.skipTest("built without the libraries that show Markdown: ./dev setup")

    def count(self, css):
        return self.browser.run(f"return document.querySelectorAll({json.dumps(css)}).length")

    def test_code_is_a_block_with_a_button_that_copies_it(self):
        self.ask("Write a function that reverses a list.")
        self.wait_for_answer()
        self.assertEqual(self.count("li.assistant strong"), 1)
        self.assertEqual(self.count("li.assistant ol > li"), 2)
        self.browser.run("window.copied = ''; navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        self.browser.click("li.assistant pre .copy")
        self.assertEqual(self.browser.wait_for("return window.copied"), "def turned(items):\n    return items[::-1]\n")
        self.check_in_every_size("code", "li.assistant pre", ".copy")

    def test_a_table_is_a_table(self):
        self.ask("Make a table of animals.")
        self.wait_for_answer()
        self.assertEqual(self.count("li.assistant table tbody tr"), 2)
        self.check_in_every_size("table", "li.assistant table")

    def test_tags_of_an_answer_are_text(self):
        self.ask("Try an attack.")
        self.wait_for_answer()
        self.assertEqual(self.count("li.assistant :is(img, script, svg, style, form, input, iframe)"), 0)
        self.assertIn("<img src=x onerror=", self.browser.run("return document.querySelector('li.assistant').textContent"))
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('li.assistant a')].map((a) => a.href)"),
                         ["", "http://elsewhere.example/a.png"])
        self.assertFalse(self.browser.run("return 'attacked' in window"))
        self.check_in_every_size("attack", "#prompt")

    def test_the_last_line_of_a_long_answer_is_in_view(self):
        for size in SIZES:
            self.size(size)
            self.ask("Something long.", 4000)
            self.wait_for_answer()
            self.assertTrue(self.shown("li.assistant:last-child .foot"), size)
            self.assertTrue(self.shown("li.assistant:last-child .text p"), size)
            self.browser.click("#clear")
        self.ask("Something long.", 4000)
        self.wait_for_answer()
        self.check_in_every_size("long")


class BaseModelPageTest(PageCase):
    @classmethod
    def arguments(cls, folder):
        model = folder / "base"
        model.mkdir()
        for file in harness.BUNDLED.iterdir():
            if file.name not in ("chat_template.jinja", "tokenizer_config.json"):
                (model / file.name).symlink_to(file)
        return "--model", model

    def test_it_says_that_a_base_model_has_no_chat(self):
        self.wait_until_ready()
        self.refusals = 1
        self.ask("Hello!")
        self.assertIn("chat template", self.wait_for_notice())
        self.check_in_every_size("base-model", "#notice", "#prompt")


class FullContextPageTest(PageCase):
    ARGUMENTS = ("--max-seq-len", 64)

    def setUp(self):
        super().setUp()
        self.wait_until_ready()

    def test_an_answer_that_fills_the_context_says_so_and_what_does_not_fit_is_refused(self):
        self.refusals = 1
        self.ask("Once upon a time")
        self.wait_for_answer()
        self.assertRegex(self.note(), r"^cut at \d+ tokens: the conversation fills all 64 that the model takes$")
        self.ask("And then? " * 20)
        self.assertIn("64", self.wait_for_notice())
        self.assertEqual(len(self.answers()), 1)
        self.check_in_every_size("full-context", "#notice", "#prompt")


class KilledServerPageTest(PageCase):
    @classmethod
    def arguments(cls, folder):
        (folder / "script.json").write_text(json.dumps(SCRIPT | {"token_ms": 200}))
        return "--model", f"scripted:{folder / 'script.json'}"

    def test_an_answer_whose_server_dies_is_marked_and_kept(self):
        self.wait_until_ready()
        self.ask("What time is it?")
        self.browser.wait_for("return document.querySelector('li.assistant .text')?.textContent.length > 10")
        self.server.process.kill()
        self.assertIn("broke off", self.wait_for_notice())
        self.assertEqual(self.note(), "broken off")
        self.check_in_every_size("killed", "#notice", ".note")
        self.ask("Are you there?")
        self.browser.wait_for("return document.getElementById('notice').textContent.includes('cannot be reached')")
        self.assertEqual(len(self.answers()), 1)
        self.browser.wait_for("return document.getElementById('health').textContent === 'not reachable'")

    def tearDown(self):
        self.browser.log("browser")  # the browser notes every request to a dead server


class PageWithKeysTest(PageCase):
    ARGUMENTS = ("--api-key", "secret")

    def test_the_page_asks_for_the_key_and_keeps_it_in_the_tab(self):
        self.browser.wait_for("return document.getElementById('access').open")
        self.assertEqual(self.browser.run("return document.getElementById('health').textContent"), "needs an API key")
        self.browser.fill("#key", "secret")
        self.wait_until_ready()
        self.ask("Once upon a time", 5)
        self.assertNotEqual(self.wait_for_answer(), "")
        self.reload()
        self.wait_until_ready()
        self.assertNotIn("secret", self.browser.run("return JSON.stringify(localStorage)"))

    def tearDown(self):
        self.browser.log("browser")  # the browser notes every request that lacked the key


if __name__ == "__main__":
    if not DRIVER:
        print("no chromedriver: apt-get install chromium chromium-driver", file=sys.stderr)
        sys.exit(harness.SKIPPED)
    harness.main()
