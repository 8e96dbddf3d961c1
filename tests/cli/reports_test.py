"""inspect, bench and doctor: what they report, for people and as JSON."""

import json
import re

import harness
from harness import CONFIG, CliTest


class InspectTest(CliTest):
    def inspect(self, *arguments):
        return self.run_encore("inspect", "--device", "cpu", "--model", self.model, *arguments).stdout

    def test_the_overview_names_passes_ops_and_arena(self):
        text = self.inspect()
        for word in ("merge_linears", "plan_arena", "attention", "uniform steps", "saved", "6 segments"):
            self.assertIn(word, text)

    def test_the_ir_after_each_pass_differs_from_the_one_before(self):
        passes = ["trace", "fuse_silu_mul", "fuse_add_rms_norm", "fuse_rope_kv_write", "merge_linears", "restore_in_place"]
        texts = [self.inspect("--after", name) for name in passes]
        self.assertEqual(len(set(texts)), len(texts))
        for text in texts:
            self.assertIn("%ids: i32[T] pad -1", text)
        self.assertIn("silu_mul", texts[1])
        self.assertNotIn("silu_mul", texts[0])
        self.assertNotIn("silu_mul", self.inspect("--after", "merge_linears", "--disable-pass", "fuse_silu_mul"))

    def test_dot_is_a_digraph(self):
        self.assertTrue(self.inspect("--dot", "--after", "trace").startswith("digraph"))

    def test_a_buckets_table_is_the_same_on_every_run(self):
        first, second = self.inspect("--bucket", "3"), self.inspect("--bucket", "3")
        self.assertEqual(first, second)
        self.assertRegex(first, r"bucket T = 3, B = 3, q = 1: \d+ launches, hash [0-9a-f]{16}\n")
        self.assertIn("attention.cpu", first)
        self.assertNotEqual(first, self.inspect("--bucket", "4"))
        self.assertIn("mixed", self.inspect("--mixed", "32"))

    def test_sections_say_where_things_are(self):
        self.assertIn("segment 0: nodes", self.inspect("--segments"))
        self.assertIn("bytes saved", self.inspect("--arena"))

    def test_json_has_the_overview(self):
        output = json.loads(self.inspect("--json"))
        self.assertEqual(output["layers"], CONFIG["num_hidden_layers"])
        self.assertTrue(output["full_recordable"])
        self.assertGreater(output["arena"]["bytes_saved"], 0)
        self.assertEqual([row["name"] for row in output["passes"]][-1], "plan_arena")

    def test_a_model_larger_than_this_machine_can_be_inspected(self):
        text = self.run_encore("inspect", "--device", "cpu", "--model", "synthetic:llama-3.1-70b", "--bucket", "1").stdout
        self.assertIn("bf16[57344,8192]", text)


class BenchTest(CliTest):
    def bench(self, what, *arguments):
        result = self.run_encore("bench", what, "--device", "cpu", "--model", self.model, "--batch", "3", "--context", "40",
                                 "--runs", "1", "--json", *arguments)
        return json.loads(result.stdout)

    def test_decode_shows_the_modes_side_by_side(self):
        output = self.bench("decode", "--steps", "4", "--warmup-tokens", "2")
        self.assertEqual([row["mode"] for row in output["modes"]], ["eager", "piecewise", "full"])
        self.assertEqual([row["walked"] for row in output["modes"]], ["eager", "piecewise", "full"])
        for row in output["modes"]:
            for key in ("step_ms", "tokens_per_s", "gb_per_s", "fraction_of_read_bandwidth"):
                self.assertGreater(row[key], 0, key)
        self.assertGreater(output["read_bandwidth_gb_per_s"], 0.1)
        weights = sum(4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
                      for name, shape in harness.tensor_shapes(CONFIG).items() if "embed" not in name)
        self.assertAlmostEqual(output["weight_bytes"], weights, delta=1000)  # and the RoPE frequencies

    def test_decode_staggers_more_sequences_than_fit_a_step(self):
        output = self.bench("decode", "--steps", "4", "--warmup-tokens", "2", "--graphs", "full", "--max-num-tokens", "16")
        self.assertEqual([row["mode"] for row in output["modes"]], ["full"])

    def test_prefill_counts_tokens(self):
        output = self.bench("prefill", "--max-num-tokens", "64")
        self.assertEqual([row["mode"] for row in output["modes"]], ["eager", "piecewise"])
        for row in output["modes"]:
            self.assertAlmostEqual(row["tokens_per_s"], 120 / row["ms"] * 1e3, delta=row["tokens_per_s"] * 1e-3)

    def test_the_table_is_for_people(self):
        text = self.run_encore("bench", "decode", "--device", "cpu", "--model", self.model, "--context", "8", "--runs", "1",
                               "--steps", "2", "--warmup-tokens", "1", "--graphs", "none").stdout
        self.assertTrue(re.search(r"eager +eager +\d", text), text)


class DoctorTest(CliTest):
    def test_it_says_what_to_run_on(self):
        self.assertIn("What that means", self.run_encore("doctor").stdout)
        output = json.loads(self.run_encore("doctor", "--json").stdout)
        self.assertIn(output["runs_on"], ("cpu", "cuda"))
        self.assertGreater(output["cpu"]["total_bytes"], 0)
        self.assertTrue(all(set(row) == {"what", "found", "remedy"} for row in output["findings"]))


if __name__ == "__main__":
    harness.main()
