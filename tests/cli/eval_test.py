"""encore eval: perplexity and distances, against logits that encore logits writes. Standard library only."""

import json
import math

import harness
from harness import BUNDLED, DEVICE, CliTest, read_npy

TEXT = "Once upon a time there was a little girl named Lily. She had a red ball.\n\"Where is it?\" asked Tom. They ran and ran.\n" * 3
WINDOW = 40


def log_probabilities(row):
    largest = max(row)
    total = largest + math.log(sum(math.exp(logit - largest) for logit in row))
    return [logit - total for logit in row]


class EvalTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.work / "text.txt"
        cls.text.write_text(TEXT)

    def eval(self, *arguments, model=BUNDLED, tokens=100):
        return json.loads(self.run_encore("eval", "--model", model, "--device", DEVICE, "--text", self.text, "--tokens", tokens,
                                          "--window", WINDOW, "--json", *arguments).stdout)

    def distributions(self, windows, *arguments):
        """Log probabilities of each position that a token follows, and those tokens."""
        ids = self.work / "ids.txt"
        ids.write_text("".join(",".join(map(str, window)) + "\n" for window in windows))
        out = self.work / "logits-{}.npy"
        self.run_encore("logits", "--model", BUNDLED, "--device", DEVICE, "--ids-file", ids, "--out", out, *arguments)
        rows = [read_npy(self.work / f"logits-{number}.npy")[0][:-1] for number in range(len(windows))]
        return [log_probabilities(row) for window in rows for row in window], [id for window in windows for id in window[1:]]

    def windows(self, tokens):
        lines = self.run_encore("tokenize", "--model", BUNDLED, "--json", input=json.dumps(TEXT) + "\n").stdout
        begin, *ids = json.loads(lines)[:tokens + 1]
        return [[begin] + ids[first:first + WINDOW - 1] for first in range(0, len(ids), WINDOW - 1)]

    def test_its_figures_are_those_of_the_logits(self):
        report = self.eval("--quantize", "fp8", "--against", "float32")
        windows = self.windows(100)
        ours, following = self.distributions(windows, "--quantize", "fp8")
        theirs, _ = self.distributions(windows, "--dtype", "f32")
        self.assertEqual(report["tokens"], len(following))

        def perplexity(rows):
            return math.exp(-sum(row[id] for row, id in zip(rows, following)) / len(following))

        divergences = sorted(sum(math.exp(b) * (b - a) for a, b in zip(p, q)) for p, q in zip(ours, theirs))
        self.assertAlmostEqual(report["perplexity"] / perplexity(ours), 1, places=4)
        self.assertAlmostEqual(report["reference_perplexity"] / perplexity(theirs), 1, places=4)
        self.assertAlmostEqual(report["kl"]["mean"] / (sum(divergences) / len(divergences)), 1, places=3)
        self.assertAlmostEqual(report["kl"]["max"] / divergences[-1], 1, places=3)
        self.assertAlmostEqual(report["kl"]["p99"] / divergences[math.ceil(0.99 * len(divergences)) - 1], 1, places=3)
        same = sum(p.index(max(p)) == q.index(max(q)) for p, q in zip(ours, theirs))
        self.assertAlmostEqual(report["same_top"], same / len(following), places=5)
        num_layers = json.loads((BUNDLED / "config.json").read_text())["num_hidden_layers"]
        self.assertEqual([row["behind"] for row in report["layers"]], ["embedding"] + [f"layer {n}" for n in range(num_layers)])
        self.assertTrue(all(0 < row["error"] < 0.2 for row in report["layers"][1:]), report["layers"])
        errors = [row["error"] for row in report["worst_tensors"]]
        self.assertEqual(errors, sorted(errors, reverse=True))
        self.assertTrue(0.01 < errors[-1] <= errors[0] < 0.05, errors)
        self.assertLess(report["weight_bytes"], report["reference_weight_bytes"])
        self.assertGreater(report["tokens_per_second"], 0)

    def test_a_model_is_no_way_from_itself(self):
        report = self.eval("--against", BUNDLED)
        self.assertEqual((report["kl"]["max"], report["same_top"], report["worst_tensors"]), (0, 1, []))
        self.assertEqual(report["perplexity"], report["reference_perplexity"])
        self.assertTrue(all(row["error"] == 0 for row in report["layers"]))

    def test_a_bundled_text_will_do_and_a_page_is_written(self):
        page = self.work / "eval.html"
        result = self.run_encore("eval", "--device", DEVICE, "--tokens", "64", "--html", page, "--quantize", "fp8",
                                 "--against", "float32")
        self.assertRegex(result.stdout, r"perplexity +\d+\.\d{4} +\d+\.\d{4}")
        self.assertRegex(result.stdout, r"layer 0 +\d\.\d+e-0\d")
        self.assertRegex(result.stdout, r"model\.layers\.\d\.\S+\.weight +\d\.\d+e-0\d")
        self.assertIn("stories, quantized to fp8 against float32 on 64 tokens", result.stdout)
        drawn = harness.drawn(page)
        self.assertIn("mean KL divergence", drawn)
        for section, row in (("Error by layer", "layer 4"), ("Worst tensors", "model.layers.")):
            behind = drawn[drawn.index(section):]
            self.assertRegex(behind, rf'<rect class="bar" [^>]*width="\d[^>]*><title>{row}[^<]*</title></rect><text [^>]*>\d\.\d+e-\d')

    def test_without_a_reference_there_is_the_perplexity_alone(self):
        report = self.eval(tokens=60)
        self.assertEqual(set(report), {"model", "tokens", "perplexity", "tokens_per_second", "weight_bytes"})

    def test_what_cannot_be_evaluated_is_said(self):
        def line(*arguments):
            return self.error_line("eval", "--device", DEVICE, *arguments, code=2)

        self.assertIn("needs a tokenizer", line("--model", "synthetic:qwen3-0.6b"))
        short = self.work / "short.txt"
        short.write_text("")
        self.assertIn("no two tokens", line("--model", BUNDLED, "--text", short))
        self.assertIn("text.txt", line("--model", BUNDLED, "--text", self.work / "no" / "text.txt"))


if __name__ == "__main__":
    harness.main()
