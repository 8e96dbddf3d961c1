"""guidellm, unmodified: closed and open loops through the server end with a report and without a failed request."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

MODEL = pathlib.Path(__file__).resolve().parents[3] / "models/stories"
URL = os.environ["ENCORE_STORIES_URL"]
PROMPTS = ("Tell me a story about a cat.", "What did the dog find in the park?", "Why was the little bird sad?",
           "Once upon a time, there was a boy named Tim. He had a red kite. Go on.")


class GuidellmTest(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def report(self, route, profile, data, num_requests):
        path = pathlib.Path(self.folder, "report.json")
        command = [pathlib.Path(sys.executable).with_name("guidellm"), "run", "--backend",
                   f"kind=openai_http,target={URL},request_format={route}", "--profile", profile, "--constraint",
                   f"kind=max_requests,count={num_requests}", "--tokenizer", f"kind=hf_auto,model={MODEL}", "--data", data,
                   "--output", f"kind=json,path={path}", "--disable-console"]
        process = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True,
                                 env=os.environ | {"HF_HUB_OFFLINE": "1"})
        self.assertEqual(process.returncode, 0, process.stderr)
        (benchmark,) = json.loads(path.read_text())["benchmarks"]
        totals = benchmark["metrics"]["request_totals"]
        self.assertEqual((totals["successful"], totals["errored"]), (num_requests, 0), totals)
        return benchmark["metrics"]

    def test_a_closed_loop_of_synthetic_completions(self):
        metrics = self.report("/v1/completions", "kind=concurrent,streams=4", "kind=synthetic_text,prompt_tokens=64,output_tokens=32", 40)
        self.assertEqual(metrics["output_token_count"]["successful"]["mean"], 32)
        self.assertGreater(metrics["time_to_first_token_ms"]["successful"]["median"], 0)

    def test_an_open_loop_of_chats_from_a_file(self):
        data = pathlib.Path(self.folder, "prompts.jsonl")
        data.write_text("".join(json.dumps({"prompt": prompt, "output_tokens_count": 24}) + "\n" for prompt in PROMPTS * 5))
        metrics = self.report("/v1/chat/completions", "kind=poisson,rate=10", f"kind=json_file,path={data}", 20)
        self.assertGreater(metrics["output_token_count"]["successful"]["mean"], 0)


if __name__ == "__main__":
    unittest.main()
