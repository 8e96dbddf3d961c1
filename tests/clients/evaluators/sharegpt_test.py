"""SGLang's load generator, unmodified: conversations of a file in ShareGPT's format end with a report and without a failed request."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

MODEL = pathlib.Path(__file__).resolve().parents[3] / "models/stories"
URL = os.environ["ENCORE_STORIES_URL"]
NUM_CONVERSATIONS = 60
NUM_REQUESTS = 40
SENTENCES = ("Once upon a time, there was a little girl named Lily.", "Tom and his dog went to the park.", "Anna had a red ball.",
             "It was raining, so the bird hid under a big leaf.", "One day, a boat sailed on the sea.", "Ben was very sad.",
             "Mom said that it was time to go home.", "They played together until the sun went down.")


def conversations(chance):
    """A question of one to eight sentences and an answer of as many, twice; only the first pair is asked."""
    def text():
        return " ".join(chance.choices(SENTENCES, k=chance.randint(1, 8)))

    return [{"id": str(i), "conversations": [{"from": speaker, "value": text()} for speaker in ("human", "gpt") * 2]}
            for i in range(NUM_CONVERSATIONS)]


class ShareGptTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.data = self.folder / "conversations.json"
        self.data.write_text(json.dumps(conversations(random.Random(1))))

    def report(self, backend, *arguments):
        path = self.folder / "report.jsonl"
        command = [sys.executable, "-m", "sglang.bench_serving", "--backend", backend, "--base-url", URL, "--model", "stories",
                   "--tokenizer", MODEL, "--dataset-name", "sharegpt", "--dataset-path", self.data, "--num-prompts", NUM_REQUESTS,
                   "--output-file", path, "--output-details", *arguments]
        process = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True,
                                 env=os.environ | {"HF_HUB_OFFLINE": "1"})
        self.assertEqual(process.returncode, 0, process.stderr)
        report = json.loads(path.read_text())
        self.assertEqual(report["completed"], NUM_REQUESTS, process.stdout)
        self.assertEqual(set(report["errors"]), {""})
        # The text that came has the tokens that were asked for.
        tokens = report["total_output_tokens"]
        self.assertAlmostEqual(report["total_output_tokens_retokenized"], tokens, delta=tokens / 50)
        self.assertGreater(report["median_ttft_ms"], 0)

    def test_an_open_loop_of_completions(self):
        self.report("vllm", "--request-rate", 20)

    def test_a_closed_loop_of_chats(self):
        self.report("sglang-oai-chat", "--max-concurrency", 8)


if __name__ == "__main__":
    unittest.main()
