"""bench serve and sim: requests of a trace, and what is said of them."""

import json
import random
import re

import harness
from harness import DEVICE, CliTest

# Steps that do not depend on how long others took.
SIZES = ["--max-batch-size", 8, "--max-num-tokens", 128, "--target-step-ms", 0]
LATENCIES = ["ttft_ms", "between_deliveries_ms", "end_to_end_ms", "lateness_ms"]
FIGURES = ["requests", "complete", "input_tokens", "output_tokens", "wall_s", "requests_per_s", "output_tokens_per_s",
           "total_tokens_per_s", *LATENCIES, "goodput", "num_steps", "eager_steps", "padding_share", "steps", "preemptions",
           "prefix_cache", "device_busy", "host_us_per_step"]


def trace_of(lengths, line_end="\n"):
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for i, (context, generated) in enumerate(lengths):
        lines.append(f"2023-11-16 18:15:{i // 20:02}.{i % 20 * 5:02}00000,{context},{generated}")
    return line_end.join(lines)


def summed(steps, key):
    return sum(step[key] for step in steps)


class TrafficTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        draw = random.Random(3)
        cls.lengths = [(draw.randint(1, 200), draw.randint(1, 30)) for _ in range(20)]
        cls.trace = cls.work / "azure.csv"
        cls.trace.write_bytes(b"\xef\xbb\xbf" + trace_of(cls.lengths, "\r\n").encode())

    def serve(self, *arguments, **options):
        return self.run_encore("bench", "serve", "--device", DEVICE, *SIZES, *arguments, **options)

    def serve_json(self, *arguments):
        return json.loads(self.serve("--json", *arguments).stdout)

    def sim_json(self, *arguments):
        return json.loads(self.run_encore("sim", *SIZES, "--json", *arguments).stdout)

    def refused(self, *arguments):
        return self.error_line("bench", "serve", "--device", DEVICE, *SIZES, *arguments, code=2)

    def test_drafts_are_right_as_often_as_they_are_said_to_be(self):
        drafts = ["--requests", 12, "--input-tokens", 20, "--output-tokens", 60, "--speculative-tokens", 2]
        out = self.serve_json(*drafts, "--synthetic-acceptance-rates", "0.7,0.49")
        self.assertEqual((out["complete"], out["output_tokens"]), (12, 12 * 60))
        counts = out["drafts"]
        self.assertEqual(counts["accepted"], sum(counts["accepted_by_position"]))
        # Drafts behind the end of a text do not count.
        for accepted, rate in zip(counts["accepted_by_position"], (0.7, 0.49)):
            self.assertAlmostEqual(accepted / counts["rows"], rate, delta=0.1)
        self.assertIn("of which", self.serve(*drafts, "--synthetic-acceptance-length", "2.5").stdout)
        self.assertIsNone(self.serve_json("--requests", 1, "--input-tokens", 4, "--output-tokens", 2)["drafts"])

    def test_drafts_that_are_forced_need_drafts(self):
        self.assertIn("without drafts", self.refused("--requests", 1, "--input-tokens", 4, "--output-tokens", 2,
                                                     "--synthetic-acceptance-length", "1.5"))
        self.assertIn("--compare-alone with synthetic acceptance", self.refused(
            "--requests", 1, "--input-tokens", 4, "--output-tokens", 2, "--speculative-tokens", 2, "--compare-alone", 1,
            "--synthetic-acceptance-length", "1.5"))

    def test_every_request_gets_exactly_its_tokens(self):
        log = self.work / "steps.jsonl"
        out = self.serve_json("--trace", self.trace, "--step-log", log, "--ttft-ms", 1e8)
        self.assertEqual([key for key in FIGURES if key not in out], [])
        prompts = sum(context for context, _ in self.lengths)
        generated = sum(generated for _, generated in self.lengths)
        self.assertEqual((out["requests"], out["complete"]), (20, 20))
        self.assertEqual((out["input_tokens"], out["output_tokens"]), (prompts, generated))
        self.assertEqual(out["ttft_ms"]["count"], 20)
        self.assertEqual(out["end_to_end_ms"]["count"], 20)
        self.assertEqual(out["between_deliveries_ms"]["count"], generated - 20)
        self.assertEqual(out["goodput"]["requests"], 20)
        self.assertEqual(out["preemptions"], 0)
        # All tokens are computed once but for each request's last.
        self.assertEqual(summed(out["steps"], "tokens"), prompts + generated - 20)
        self.assertEqual(out["prefix_cache"]["query_tokens"], prompts)
        self.assertEqual(out["prefix_cache"]["hit_tokens"], 0)
        self.assertEqual(out["num_steps"], summed(out["steps"], "steps"))
        self.assertEqual(out["eager_steps"], 0)
        padding = summed(out["steps"], "padding")
        self.assertAlmostEqual(out["padding_share"], padding / (padding + prompts + generated - 20))
        busy = out["device_busy"]
        self.assertEqual(busy["decode_steps"] + busy["mixed_steps"], out["num_steps"])
        self.assertTrue(0 < busy["share"] <= 1.001, busy)
        for key in LATENCIES:
            values = out[key]
            self.assertTrue(0 <= values["p50"] <= values["p90"] <= values["p99"] <= values["max"], values)

        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual(len(lines), out["num_steps"])
        self.assertEqual(summed(lines, "tokens"), prompts + generated - 20)
        simulated = self.sim_json("--trace", self.trace, "--fit", log, "--overlap", "off" if DEVICE == "cpu" else "on",
                                  "--save-cost", self.work / "cost.json")
        self.assertEqual(simulated["steps"], out["steps"])
        self.assertEqual(simulated["output_tokens"], generated)
        self.assertEqual(simulated["fit"]["steps"], out["num_steps"])
        again = self.sim_json("--trace", self.trace, "--cost", self.work / "cost.json", "--overlap",
                              "off" if DEVICE == "cpu" else "on")
        self.assertEqual(again["steps"], simulated["steps"])
        self.assertAlmostEqual(again["wall_s"] / simulated["wall_s"], 1, 4)  # a file has six digits

    def test_a_page_draws_the_traffic(self):
        page, cost = self.work / "traffic.html", self.work / "fast.json"
        cost.write_text(json.dumps({"decode": {"us": 1e3}, "mixed": {"us": 2e3}}))
        what = ["--trace", self.trace, "--html", page, "--ttft-ms", 1e8, "--tbt-ms", 5]
        for serve, num_drawings in ((lambda: self.serve_json(*what), 6), (lambda: self.sim_json(*what, "--cost", cost), 5)):
            out = serve()
            drawn = harness.drawn(page)
            # Load, throughput, memory where a process serves, and three latencies.
            self.assertEqual((drawn.count("<svg"), "GiB of memory in use" in drawn), (num_drawings, num_drawings == 6))
            self.assertIn(f"20 requests of {self.trace}", drawn)
            self.assertIn(f"<b>{out['goodput']['requests_per_s']:.2f}</b><span>requests/s within the limits", drawn)
            rows = re.findall("<tr><td>([0-9]+) (sequences|tokens)[^<]*</td><td>full</td><td>([0-9]+)</td>", drawn)
            self.assertEqual(sum(int(steps) for _, _, steps in rows), out["num_steps"])

    def test_equal_blocks_of_a_mooncake_trace_are_computed_once(self):
        trace = self.work / "mooncake.jsonl"
        requests = [{"timestamp": 100 * i, "input_length": 520 + i, "output_length": 2, "hash_ids": [7, 100 + i]}
                    for i in range(4)]
        trace.write_text("\n".join(map(json.dumps, requests)))
        prompts = sum(request["input_length"] for request in requests)
        out = self.serve_json("--trace", trace)
        self.assertEqual((out["complete"], out["input_tokens"], out["output_tokens"]), (4, prompts, 8))
        self.assertEqual(out["prefix_cache"]["hit_tokens"], 3 * 512)
        self.assertEqual(summed(out["steps"], "tokens"), prompts - 3 * 512 + 4)
        without = self.serve_json("--trace", trace, "--prefix-cache", "off")
        self.assertIsNone(without["prefix_cache"])
        self.assertEqual(summed(without["steps"], "tokens"), prompts + 4)

    def test_lengths_are_capped_and_requests_limited(self):
        out = self.serve_json("--trace", self.trace, "--limit", 5, "--max-input-tokens", 50, "--max-output-tokens", 3)
        self.assertEqual(out["complete"], 5)
        self.assertEqual(out["input_tokens"], sum(min(50, context) for context, _ in self.lengths[:5]))
        self.assertEqual(out["output_tokens"], sum(min(3, generated) for _, generated in self.lengths[:5]))

    def test_requests_of_one_length_come_when_they_are_told_to(self):
        arrivals = self.work / "arrivals.csv"
        arrivals.write_text("seconds\n0.0\n0.1\n0.4\n9\n")
        ones = ["--requests", 3, "--input-tokens", 20, "--output-tokens", 2]
        out = self.serve_json(*ones, "--arrivals", arrivals, "--speed", 2)
        self.assertEqual((out["complete"], out["input_tokens"], out["output_tokens"]), (3, 60, 6))
        self.assertGreaterEqual(out["wall_s"], 0.2)  # the last arrives then
        out = self.serve_json(*ones, "--rate", 100, "--seed", 4)
        self.assertEqual(out["complete"], 3)
        out = self.serve_json("--trace", self.trace, "--limit", 4, "--arrivals", "trace", "--step-times", "off")
        self.assertEqual(out["complete"], 4)
        self.assertGreaterEqual(out["wall_s"], 0.15)
        self.assertIsNone(out["device_busy"])

    def test_idle_times_of_the_device_are_told_by_whether_the_batch_changed(self):
        out = self.serve_json("--requests", 3, "--input-tokens", 9, "--output-tokens", 8, "--idle-times", "on")
        self.assertGreater(out["device_idle_us"]["same"]["count"], 3)
        self.assertIsNone(out["device_busy"])
        self.assertIsNone(self.serve_json("--trace", self.trace, "--limit", 1)["device_idle_us"])

    def test_some_requests_are_answered_again_alone(self):
        out = self.serve_json("--trace", self.trace, "--compare-alone", 6, "--batch-invariant", "on")
        self.assertEqual(out["alone"], {"compared": 6, "different": []})
        text = self.serve("--requests", 3, "--input-tokens", 9, "--output-tokens", 4, "--compare-alone", 9).stdout
        self.assertRegex(text, r"alone, \d of 3 requests get the same tokens")
        self.assertIsNone(self.serve_json("--trace", self.trace, "--limit", 1)["alone"])

    def test_mixed_requests_are_answered_as_they_are_alone(self):
        out = self.serve_json("--mixed-seconds", 3, "--rate", 12, "--max-input-tokens", 300, "--max-output-tokens", 20,
                              "--compare-alone", 10)
        self.assertEqual(out["failed"], 0)
        self.assertEqual(out["complete"] + out["left"], out["requests"])
        self.assertEqual(sum(out["ended"].values()), out["requests"])
        self.assertEqual(out["alone"], {"compared": 10, "different": []})
        self.assertGreater(out["memory_use"]["host"]["end_bytes"], 1 << 20)
        self.assertIn("--rate R", self.refused("--mixed-seconds", 3))
        self.assertIn("leave out --trace", self.refused("--mixed-seconds", 3, "--rate", 1, "--trace", self.trace))

    def test_text_says_what_was_served(self):
        text = self.serve("--trace", self.trace, "--limit", 3, "--tbt-ms", 1e8).stdout
        for part in (f"3 requests of {self.trace}, all at once", "output tokens/s", "time to first token",
                     "between deliveries", "goodput: ", "decode", "with prompts", "0 eager", "host, us a step: plan"):
            self.assertIn(part, text)

    def test_a_simulation_needs_no_time_to_pass(self):
        cost = self.work / "slow.json"
        cost.write_text(json.dumps({"decode": {"us": 1e6}, "mixed": {"us": 2e6}}))
        out = self.sim_json("--cost", cost, "--requests", 8, "--input-tokens", 16, "--output-tokens", 5)
        self.assertEqual({(step["q"], step["steps"]) for step in out["steps"]}, {(0, 1), (1, 4)})
        self.assertAlmostEqual(out["wall_s"], 2 + 4)
        self.assertAlmostEqual(out["ttft_ms"]["max"], 2000)
        self.assertAlmostEqual(out["between_deliveries_ms"]["p50"], 1000)
        self.assertAlmostEqual(out["device_busy"]["share"], 1)

    def test_a_simulation_has_pages_of_windows_where_a_server_has_them(self):
        config = self.work / "windows" / "config.json"
        config.parent.mkdir()
        config.write_text(json.dumps({
            "model_type": "mistral", "architectures": ["MistralForCausalLM"], "vocab_size": 256, "hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 4096, "sliding_window": 64}))
        cost = self.work / "windows_cost.json"
        cost.write_text(json.dumps({"decode": {"us": 1e6}, "mixed": {"us": 2e6}}))
        asked = ["--cost", cost, "--requests", 4, "--output-tokens", 5, "--model", f"synthetic:{config}", "--input-tokens"]
        out = self.sim_json(*asked, 500)
        self.assertEqual(out["complete"], 4)
        self.assertTrue(0 < out["window_kv_tokens"] < out["kv_tokens"] / 4, out)
        self.assertEqual(self.sim_json(*asked, 500, "--window-pages", "off")["window_kv_tokens"], 0)
        self.assertEqual(self.sim_json(*asked, 50, "--max-seq-len", 64)["window_kv_tokens"], 0)

    def test_a_simulation_of_ranks_shares_the_cost_and_adds_the_sums(self):
        cost = self.work / "alone.json"
        cost.write_text(json.dumps({"decode": {"us": 1e6}, "mixed": {"us": 2e6}}))
        sums = self.work / "sums.json"
        sums.write_text(json.dumps({"ranks": 2, "cases": [{"bytes": size, "fused_us": 1e4} for size in (1000, 9000)]}))
        requests = ["--cost", cost, "--requests", 8, "--input-tokens", 16, "--output-tokens", 5, "--tensor-parallel", 2]
        layers = json.loads((harness.BUNDLED / "config.json").read_text())["num_hidden_layers"]
        out = self.sim_json(*requests, "--collectives", sums)
        self.assertAlmostEqual(out["wall_s"], 1 + 4 * 0.5 + 5 * (2 * layers + 4) * 0.01, 5)
        self.assertEqual(out["ranks"], 2)
        self.assertAlmostEqual(self.sim_json(*requests)["wall_s"], 2 + 4)  # the cost is that of the ranks
        self.assertIn("measured between 2 ranks", self.error_line("sim", *SIZES, *requests[:-1], 1, "--collectives", sums, code=2))
        self.assertIn("does not divide", self.error_line("sim", *SIZES, *requests[:-1], 7, code=2))

    def test_what_does_not_go_together_is_refused(self):
        bad = self.work / "bad.csv"
        bad.write_text(trace_of([(5, 5), (-1, 5)]))
        self.assertIn(f"{bad}:3: ContextTokens is -1", self.refused("--trace", bad))
        self.assertIn("cannot", self.refused("--trace", self.work / "none.csv"))
        self.assertIn("give --trace FILE, or --requests", self.refused("--requests", 3))
        self.assertIn("--limit", self.refused("--trace", self.trace, "--requests", 3))
        long = self.work / "long.csv"
        long.write_text(trace_of([(5, 5), (2000, 5)]))
        self.assertIn(f"{long}:3: 2000 input and 5 output tokens are more than the 1024 of one sequence: cut them",
                      self.refused("--trace", long))
        self.assertIn("raise --kv-tokens", self.refused("--trace", long, "--max-input-tokens", 300, "--kv-tokens", 128))
        short = self.work / "short.csv"
        short.write_text("0\n1\n")
        self.assertIn("has 2 times for 20 requests; take --limit 2", self.refused("--trace", self.trace, "--arrivals", short))
        self.assertIn("give one", self.refused("--trace", self.trace, "--arrivals", "trace", "--rate", 3))
        self.assertIn("--fit LOG", self.error_line("sim", "--trace", self.trace, code=2))
        self.assertIn("too few to fit", self.error_line("sim", "--trace", self.trace, "--fit", self.few_steps(), code=2))

    def few_steps(self):
        log = self.work / "few.jsonl"
        log.write_text('{"context_tokens": 0, "generation_requests": 1}\n')
        return log


if __name__ == "__main__":
    harness.main()
