"""chat: a conversation on standard input."""

import contextlib
import json
import os
import re
import subprocess
import unittest

import harness
from harness import BUNDLED, DEVICE, CliTest


@unittest.skipUnless(BUNDLED.is_dir(), "models/stories is not in this checkout")
class ChatTest(CliTest):
    def chat(self, text, *arguments):
        return self.run_encore("chat", "--device", DEVICE, "--temperature", "0", "--max-tokens", "20", *arguments, input=text)

    def continued(self, prompt):
        return json.loads(self.run_encore("generate", "--device", DEVICE, "--prompt", prompt, "--max-tokens", "20",
                                          "--json").stdout)["text"]

    def reasoning_template(self):
        """Of a model that reasons first; the bundled one, which is not made for it, never gets out of it."""
        template = self.work / "reasoning.jinja"
        template.write_text("{{ bos_token }}{% for m in messages %}{% if m.reasoning_content %}"
                            "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                            "{% if add_generation_prompt %}<think>\n{% endif %}")
        return template

    @staticmethod
    def words(text):
        return text.split()

    def test_an_answer_goes_on_from_the_whole_conversation(self):
        first = self.continued("Once upon a time")
        second = self.continued("Once upon a time" + first + "\n\nThen a fox came.")
        self.assertEqual(self.chat("Once upon a time\nThen a fox came.\n").stdout, first + "\n" + second + "\n")

    def test_commands_retry_and_clear(self):
        first = self.continued("Once upon a time")
        output = self.chat("Once upon a time\n/retry\n/clear\nOnce upon a time\n/quit\nnot read\n").stdout
        self.assertEqual(output, (first + "\n") * 3)
        result = self.chat("/retry\n/help\n")
        self.assertEqual(result.stdout, "")
        self.assertIn("there is no message to answer", result.stderr)
        self.assertIn("/clear", result.stderr)

    def test_a_line_goes_on_behind_a_backslash(self):
        self.assertEqual(self.chat("Once upon\\\na time\n").stdout, self.continued("Once upon\na time") + "\n")

    def test_a_message_without_an_end_is_refused(self):
        chat = ["chat", "--device", DEVICE]
        with open("/dev/zero", "rb") as zero:
            self.assertIn("error (usage): line 1 has no end within 256 MiB", self.run_encore(*chat, code=2, stdin=zero).stderr)
        with subprocess.Popen(["yes", 100_000 * "x" + "\\"], stdout=subprocess.PIPE) as lines:
            self.assertIn("has no end within 256 MiB", self.run_encore(*chat, code=2, stdin=lines.stdout).stderr)

    def bundled_with(self, **generation_config):
        model = self.work / "with_defaults"
        model.mkdir(exist_ok=True)
        for file in BUNDLED.iterdir():
            if file.name != "generation_config.json" and not (model / file.name).exists():
                (model / file.name).symlink_to(file)
        (model / "generation_config.json").write_text(json.dumps(generation_config))
        return model

    def test_a_model_is_sampled_as_its_authors_want_but_for_what_flags_say(self):
        model = self.bundled_with(do_sample=True, temperature=5.0, top_k=1, max_new_tokens=7)
        chat = ["chat", "--device", DEVICE, "--model", model]
        whole = self.continued("Once upon a time")
        answer = self.run_encore(*chat, input="Once upon a time\n").stdout[:-1]
        self.assertTrue(answer and whole.startswith(answer), answer)
        self.assertLess(len(answer), len(whole))
        self.assertEqual(self.run_encore(*chat, "--max-tokens", "20", input="Once upon a time\n").stdout, whole + "\n")
        wild = self.run_encore(*chat, "--max-tokens", "20", "--top-k", "0", input="Once upon a time\n").stdout
        self.assertNotEqual(wild, whole + "\n")

    def test_on_a_terminal_a_cut_answer_says_so(self):
        ours, theirs = os.openpty()
        result = subprocess.run([self.encore, "chat", "--device", DEVICE, "--max-tokens", "6"], input=b"Once upon a time\n",
                                stdout=theirs, stderr=subprocess.PIPE, check=True, timeout=600)
        os.close(theirs)
        os.close(ours)
        self.assertIn(b"(cut at 6 tokens)", result.stderr)

    def test_what_has_no_room_is_taken_back(self):
        result = self.chat("word " * 2000 + "\nOnce upon a time\n")
        self.assertIn("/clear begins anew", result.stderr)
        self.assertEqual(result.stdout, self.continued("Once upon a time") + "\n")

    def test_reasoning_is_shown_aside_and_kept_out_of_the_conversation(self):
        first = self.continued("user: Once upon a time\n<think>\n")
        second = self.continued("user: Once upon a time\nassistant: \nuser: Then a fox came.\n<think>\n")
        result = self.chat("Once upon a time\nThen a fox came.\n", "--chat-template", self.reasoning_template())
        self.assertEqual(result.stdout, "\n\n")
        expected = self.words(first) + self.words(second)
        self.assertEqual(self.words(result.stderr)[-len(expected):], expected)

    def test_on_a_terminal_reasoning_is_dimmed(self):
        ours, theirs = os.openpty()
        subprocess.run([self.encore, "chat", "--device", DEVICE, "--temperature", "0", "--max-tokens", "20",
                        "--chat-template", self.reasoning_template()], input=b"Once upon a time\n", stdout=theirs, stderr=subprocess.DEVNULL,
                       check=True, timeout=600)
        os.close(theirs)
        shown = ""
        with contextlib.suppress(OSError):  # how the end of a terminal is told
            while part := os.read(ours, 1 << 16):
                shown += part.decode()
        os.close(ours)
        pieces = re.findall("\x1b\\[2m(.*?)\x1b\\[22m", shown, re.DOTALL)
        self.assertEqual(self.words("".join(pieces)), self.words(self.continued("user: Once upon a time\n<think>\n")))
        self.assertEqual(re.sub("\x1b\\[2m.*?\x1b\\[22m", "", shown, flags=re.DOTALL).strip(), "")

    def test_in_a_terminal_messages_are_edited_and_come_again(self):
        ours, theirs = os.openpty()
        process = subprocess.Popen([self.encore, "chat", "--device", DEVICE, "--temperature", "0", "--max-tokens", "20"], stdin=theirs,
                                   stdout=theirs, stderr=subprocess.DEVNULL, env=os.environ | {"TERM": "xterm"})
        os.close(theirs)
        shown = ""

        def until(text):
            nonlocal shown
            while text not in shown:
                shown += os.read(ours, 1 << 16).decode()
            seen, _, shown = shown.partition(text)
            return seen

        ready = "\x1b[?2004h"  # what is pasted comes marked, from when a message is awaited
        answer = self.continued("Once upon a time").replace("\n", "\r\n")
        until(ready)
        os.write(ours, b"Once upon a tame\x7f\x7f\x7fime\r")  # Backspace three times
        self.assertIn(answer, until(ready))
        os.write(ours, b"/clear\r")
        until(ready)
        os.write(ours, b"\x1b[A\x1b[A\r")  # up, and up again
        self.assertIn(answer, until(ready))
        os.write(ours, b"\x04")
        self.assertEqual(process.wait(timeout=600), 0)
        os.close(ours)

    def test_a_conversation_may_be_kept_short(self):
        self.assertEqual(self.chat("Once upon a time\n", "--max-seq-len", "64").stdout, self.continued("Once upon a time") + "\n")

    def test_without_a_template_it_says_what_to_do(self):
        line = self.error_line("chat", "--device", DEVICE, "--model", self.model, code=2, input="")
        self.assertIn("tokenizer.json", line)


if __name__ == "__main__":
    harness.main()
