"""chat: a conversation on standard input."""

import json
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

    def test_what_has_no_room_is_taken_back(self):
        result = self.chat("word " * 2000 + "\nOnce upon a time\n")
        self.assertIn("/clear begins anew", result.stderr)
        self.assertEqual(result.stdout, self.continued("Once upon a time") + "\n")

    def test_a_conversation_may_be_kept_short(self):
        self.assertEqual(self.chat("Once upon a time\n", "--max-seq-len", "64").stdout, self.continued("Once upon a time") + "\n")

    def test_without_a_template_it_says_what_to_do(self):
        line = self.error_line("chat", "--device", DEVICE, "--model", self.model, code=2, input="")
        self.assertIn("tokenizer.json", line)


if __name__ == "__main__":
    harness.main()
