"""inspect, bench and doctor: what they report, for people and as JSON."""

import itertools
import json
import re
import tempfile
from pathlib import Path

import harness
from harness import CONFIG, DEVICE, CliTest

# The kernel that attention in f32 takes.
ATTENTION = {"cpu": "attention.cpu", "cuda": "attention.plain"}[DEVICE]

class InspectTest(CliTest):
    def inspect(self, *arguments):
        return self.run_encore("inspect", "--device", DEVICE, "--model", self.model, *arguments).stdout

    def test_the_overview_names_passes_ops_and_arena(self):
        text = self.inspect()
        for word in ("merge_linears", "plan_arena", "attention", "full recordings", "saved", "7 segments"):
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
        self.assertIn(f" {ATTENTION} ", first)
        self.assertNotEqual(first, self.inspect("--bucket", "4"))
        self.assertIn("mixed", self.inspect("--mixed", "32"))

    def test_a_recording_is_listed_node_by_node_and_drawn(self):
        text = self.inspect("--bucket", "2", "--recording")
        launches, nodes = map(int, re.match(r"recording of (\d+) launches: (\d+) nodes\n", text).groups())
        self.assertEqual(len(text.splitlines()), nodes + 1)
        self.assertRegex(text, r"kernel +attention +(full|programmatic) ")
        if DEVICE == "cpu":  # elsewhere a launch may be several nodes
            self.assertEqual(launches, nodes)
        dot = self.inspect("--bucket", "2", "--recording", "--dot")
        self.assertTrue(dot.startswith("digraph recording {"))
        self.assertEqual(dot.count("[label="), launches)
        self.assertEqual(dot.count("digraph"), 1)

    def test_sections_say_where_things_are(self):
        self.assertIn("segment 0: nodes", self.inspect("--segments"))
        self.assertIn("bytes saved", self.inspect("--arena"))

    def test_a_split_op_is_kept_from_fusion_and_is_a_segment_of_its_own(self):
        split = self.inspect("--split-at", "silu_mul,rms_norm", "--segments")
        self.assertGreater(split.count("in full recordings"),
                           self.inspect("--segments").count("in full recordings"))
        text = self.inspect("--split-at", "silu_mul")
        self.assertRegex(text, r"silu_mul +2 +full recordings +pieces leave out")
        error = self.run_encore("inspect", "--device", DEVICE, "--model", self.model, "--split-at", "silu_mull", code=2)
        self.assertRegex(error.stderr, "no launch of op 'silu_mull' to split at; the program's ops: .*fused_linear")

    def test_memory_that_is_not_reused_saves_nothing(self):
        self.assertIn("\n0 bytes saved", self.inspect("--arena", "--memory-reuse", "off"))

    def test_json_has_the_overview(self):
        output = json.loads(self.inspect("--json"))
        self.assertEqual(output["layers"], CONFIG["num_hidden_layers"])
        self.assertGreater(output["arena"]["bytes_saved"], 0)
        self.assertEqual([row["name"] for row in output["passes"]][-1], "plan_arena")

    def test_a_model_larger_than_this_machine_can_be_inspected(self):
        text = self.run_encore("inspect", "--device", DEVICE, "--model", "synthetic:llama-3.1-70b", "--bucket", "1").stdout
        self.assertIn("bf16[57344,8192]", text)


class BisectTest(CliTest):
    def bisect(self, *arguments):
        output = self.run_encore("bisect", "--device", DEVICE, "--model", self.model, "--json", *arguments).stdout
        return json.loads(output)

    def test_a_healthy_model_differs_nowhere(self):
        report = self.bisect("--batch", "3")
        self.assertEqual([part["mode"] for part in report["modes"]], ["piecewise", "full"])
        for part in report["modes"]:
            self.assertIsNone(part["first"])
            self.assertIsNone(part["outputs"])
            self.assertGreater(part["launches"], 10)
        self.assertEqual(self.bisect("--tokens", "40")["modes"][0]["mode"], "piecewise")

    @harness.cpu_only("attention of prompts in f32 is not recorded on a GPU")
    def test_a_mixed_step_is_compared_in_the_mode_that_is_named(self):
        self.assertEqual([part["mode"] for part in self.bisect("--tokens", "40")["modes"]], ["piecewise", "full"])
        for mode in ("piecewise", "full"):
            self.assertEqual([part["mode"] for part in self.bisect("--tokens", "40", "--mode", mode)["modes"]], [mode])

    def test_it_takes_what_the_run_that_went_wrong_took(self):
        config = self.work / "run.yaml"
        config.write_text("decode_ladder: [1, 2, 8]\npage_size: 64\n")
        base = ["bisect", "--device", DEVICE, "--model", self.model, "--batch", "3"]
        for arguments in (["--config", config], ["--decode-ladder", "1,2,8", "--page-size", "64"],
                          ["--decode-ladder", "pow2", "--max-batch-size", "4"]):
            result = self.run_encore(*base, *arguments, "--token-ladder", "16,32", "--verbose")
            self.assertIn("full recordings: 3 in", result.stderr)
            self.assertEqual(result.stdout.count("the same bits as eager"), 2)
        self.assertIn("give it a larger size", self.error_line(*base, "--decode-ladder", "2", code=2))
        result = self.run_encore(*base, "--tokens", "40", "--max-seq-len", "8", code=2)
        self.assertIn("raise --max-seq-len or --kv-tokens", result.stderr)


class MeasureTest(CliTest):
    def test_one_ladder_is_measured_when_it_is_named(self):
        output = json.loads(self.run_encore(
            "graphs", "--measure", "--device", DEVICE, "--model", self.model, "--max-batch-size", "6", "--decode-ladder", "2,6",
            "--replays", "3", "--json").stdout)
        self.assertEqual([(row["ladder"], row["recordings"]) for row in output["strategies"]], [("2,6", 2)])
        self.assertEqual(set(output), {"strategies", "replays"})

    def test_each_row_is_told_before_the_next_one_is_measured(self):
        result = self.run_encore("graphs", "--measure", "--device", DEVICE, "--model", self.model, "--max-batch-size", "4",
                                 "--max-num-tokens", "16", "--token-ladder", "16", "--json")
        told = re.findall(r"^encore: (measuring|16: (\d+) recordings, memory .* predicted\), .* ms to record, mean step .* ms|"
                          r"no recordings: (0) recordings)", result.stderr, re.MULTILINE)
        rows = [json.loads(result.stdout)[key][0]["recordings"] for key in ("token_strategies", "piece_strategies")]
        self.assertEqual([whole if whole == "measuring" else int(named or none) for whole, named, none in told],
                         ["measuring", rows[0], "measuring", 0, "measuring", rows[1]])

    def test_ladders_are_measured_beside_what_was_predicted(self):
        output = self.run_encore(
            "graphs", "--measure", "--device", DEVICE, "--model", self.model, "--max-batch-size", "12", "--max-num-tokens",
            "40", "--json").stdout
        report = json.loads(output)
        ladders = {row["ladder"]: row for row in report["strategies"]}
        self.assertEqual(ladders["pow2"]["recordings"], 5)
        self.assertEqual(ladders["no recordings"]["recordings"], 0)
        self.assertEqual(ladders["no recordings"]["padding_waste"], 0)
        waste = [ladders[name]["padding_waste"] for name in ("every 16", "every 8", "every 4")]
        self.assertEqual(waste, sorted(waste, reverse=True))
        self.assertEqual(len(set(waste)), 3)
        covered = {name: row["sizes_covered"] for name, row in ladders.items()}
        self.assertEqual((covered["pow2"], covered["every 16"], covered["every 8"], covered["every 4"]),
                         ("1 to 8 doubling, 12", "12", "8, 12", "4 to 12 by 4"))
        self.assertEqual((covered["step-8"], ladders["step-8"]["recordings"]), ("1 to 8 by 1, 12", 9))
        tokens = {row["ladder"]: row for row in report["token_strategies"]}
        self.assertEqual(list(tokens), ["pow2", "trtllm", "sglang", "no recordings"])
        self.assertEqual(tokens["sglang"]["sizes_covered"], "4 to 32 by 4, 40")
        self.assertEqual((tokens["no recordings"]["recordings"], tokens["no recordings"]["padding_waste"]), (0, 0))
        self.assertGreater(tokens["sglang"]["recordings"], tokens["pow2"]["recordings"])
        pieces = {row["ladder"]: row for row in report["piece_strategies"]}
        self.assertEqual(list(pieces), list(tokens))
        # Whole: a recording for each size, as so few sequences have one bucket, and one of decode steps.
        self.assertEqual(tokens["sglang"]["recordings"], 1 + 9)
        self.assertEqual(tokens["sglang"]["executables"], tokens["sglang"]["recordings"])
        self.assertGreater(pieces["sglang"]["recordings"], tokens["sglang"]["recordings"])
        for row in report["strategies"] + report["token_strategies"] + report["piece_strategies"]:
            self.assertEqual(row["formula_bytes"], row["nodes"] * 256)
            self.assertEqual(row["predicted_bytes"] > 0, row["recordings"] > 0)
            self.assertGreater(row["mean_step_ms"], 0)
            if DEVICE == "cpu":  # its recordings lie in memory that nobody counts
                self.assertIsNone(row["kv_tokens"])
        for orders in (report["orders"], report["token_orders"]):
            self.assertEqual(len({row["plan"]["arena"] for row in orders}), 1, "one arena whatever the number of sizes")
            self.assertEqual(orders[0]["arenas_apart"], orders[1]["arenas_apart"])
            self.assertGreater(orders[0]["arenas_apart"], orders[2]["arenas_apart"])
        self.assertGreater(report["token_orders"][0]["arenas_apart"], 2 * report["token_orders"][0]["plan"]["arena"])

    def test_what_was_published_stands_beside_what_was_measured(self):
        measure = ["graphs", "--measure", "--device", DEVICE, "--model", self.model, "--max-num-tokens", "512"]
        text = self.run_encore(*measure, "--max-batch-size", "512", "--decode-ladder", "pow2").stdout
        table = text[text.index("measured (published"):]
        self.assertRegex(table, r"pow2 +10 \(10\) .*\(300 to 500 MB\) +24\.8\d % \(25 %\) .*x \(1\.15x\)")
        text = self.run_encore(*measure, "--max-batch-size", "256", "--decode-ladder", "pow2").stdout
        self.assertNotIn("published", text)

    def test_a_table_without_rows_is_left_out(self):
        text = self.run_encore("graphs", "--measure", "--device", DEVICE, "--model", self.model, "--max-batch-size", "2",
                               "--max-num-tokens", "8").stdout
        self.assertEqual(text.count("sizes covered"), 3)  # of each kind of ladder

    def test_a_token_ladder_is_measured_when_it_is_named(self):
        measure = ["graphs", "--measure", "--device", DEVICE, "--model", self.model, "--max-batch-size", "4",
                   "--max-num-tokens", "64", "--token-ladder", "16,64"]
        output = json.loads(self.run_encore(*measure, "--json").stdout)
        self.assertEqual(set(output), {"token_strategies", "piece_strategies", "replays"})
        (whole,), (pieces,) = output["token_strategies"], output["piece_strategies"]
        for row in (whole, pieces):
            self.assertEqual((row["ladder"], row["sizes_covered"]), ("16,64", "16, 64"))
        self.assertEqual(whole["recordings"], 1 + 2, "of decode steps; of steps with prompts")
        self.assertGreater(pieces["recordings"], whole["recordings"])
        text = self.run_encore(*measure).stdout
        for word in ("token ladder", "sizes covered", "formula", "KV tokens"):
            self.assertIn(word, text)

    def test_the_estimate_says_how_many_tokens_the_recordings_displace(self):
        output = json.loads(self.run_encore("graphs", "--estimate", "--model", self.model, "--json").stdout)
        bytes_per_token = 2 * 2 * 2 * 64 * 4  # K and V, 2 layers, 2 heads of 64 floats
        for cost in (output["total"], output["full"]["total"], output["tokens"]["total"]):
            self.assertEqual(cost["kv_tokens"], -(-cost["bytes"] // bytes_per_token))

    def test_the_estimate_is_that_of_a_rank(self):
        estimate = ["graphs", "--estimate", "--device", "cpu", "--model", self.model, "--tensor-parallel", "2"]
        output = json.loads(self.run_encore(*estimate, "--json").stdout)
        self.assertEqual(output["ranks"], 2)
        bytes_per_token = 2 * 2 * 1 * 64 * 4  # a rank has one of the two heads
        self.assertEqual(output["total"]["kv_tokens"], -(-output["total"]["bytes"] // bytes_per_token))
        self.assertIn("kernels of the CPU, of each of 2 ranks", self.run_encore(*estimate).stdout)


class GraphsLogTest(CliTest):
    def report(self, steps, *arguments):
        log = self.work / "steps.jsonl"
        log.write_text("".join(json.dumps({"context_tokens": context, "generation_requests": generation}) + "\n"
                               for context, generation in steps))
        return self.run_encore("graphs", "--log", log, *arguments).stdout

    def test_the_hit_rate_has_a_verdict_for_each_ladder(self):
        steps = [(0, size) for size in range(1, 21)] + [(40, 0)] * 19 + [(500, 0)]
        ladders = ["--decode-ladder", "1,2,4,8,20", "--token-ladder", "40"]
        text = self.report(steps, *ladders)
        self.assertIn("hit rate 100.00 %: above the target of 95 %", text)
        self.assertIn("hit rate 95.00 %: under the target of 95 %, which a largest size of 500 would reach", text)
        report = json.loads(self.report(steps, *ladders, "--json"))
        self.assertEqual((report["decode"]["meets_target"], report["tokens"]["meets_target"]), (True, False))
        self.assertEqual((report["decode"]["eager_rows"], report["tokens"]["eager_rows"]), (0, 500))

    def test_with_a_model_each_ladder_says_how_many_tokens_of_kv_it_displaces(self):
        steps = [(0, size) for size in range(1, 21)] + [(40, 0)]
        report = json.loads(self.report(steps, "--model", self.model, "--decode-ladder", "1,20", "--json"))
        displaced = {row["name"]: row["kv_tokens"] for row in report["decode"]["schedules"]}
        self.assertGreater(displaced["pow2"], report["decode"]["kv_tokens"])
        self.assertGreater(report["decode"]["kv_tokens"], 0)
        self.assertGreater(report["tokens"]["kv_tokens"], 0)
        self.assertIn("KV tokens", self.report(steps, "--model", self.model))
        self.assertNotIn("KV tokens", self.report(steps))

    def test_a_page_shows_what_a_ladder_misses_on_the_scale_of_the_others(self):
        page = self.work / "missed.html"
        self.report([(0, 2)] * 4 + [(0, 50)] * 6, "--decode-ladder", "1,2", "--html", page)
        drawn = harness.drawn(page)
        section = drawn.split("Steps with prompts")[0]
        self.assertIn('<p class="over">hit rate 40.00 %: under the target of 95 %', section)
        bars = re.search(r'<svg[^>]*aria-label="Rows by ladder.*?</svg>', section, re.DOTALL).group()
        parts = {}
        for style, width, what in re.findall(r'<rect class="(\w+)"[^>]* width="([\d.]+)"[^>]*><title>([^<]*)</title>', bars):
            parts.setdefault(style, []).append((float(width), what))
        (replayed, _), = parts["bar"]  # the ladder itself: 8 rows, no padding, 300 eager
        missed = [width for width, what in parts["miss"] if what.startswith("300 ")]
        self.assertEqual(len(parts["miss"]), len(missed))
        self.assertAlmostEqual(missed[0] / replayed, 300 / 8, delta=0.5)
        self.assertGreater(max(width for width, _ in parts["other"]), missed[0])  # a schedule that holds all 308
        self.assertRegex(drawn, r"eager: 97.40 % of all rows")


class BenchTest(CliTest):
    def bench(self, what, *arguments):
        result = self.run_encore("bench", what, "--device", DEVICE, "--model", self.model, "--batch", "3", "--context", "40",
                                 "--runs", "1", "--json", *arguments)
        return json.loads(result.stdout)

    def test_decode_shows_the_modes_side_by_side(self):
        output = self.bench("decode", "--steps", "4", "--warmup-tokens", "2")
        self.assertEqual([row["mode"] for row in output["modes"]], ["eager", "piecewise", "full"])
        self.assertEqual([row["ran"] for row in output["modes"]], ["eager", "piecewise", "full"])
        for row in output["modes"]:
            for key in ("step_ms", "sampled_step_ms", "device_ms", "tokens_per_s", "gb_per_s", "fraction_of_read_bandwidth"):
                self.assertGreater(row[key], 0, key)
            self.assertGreaterEqual(row["device_idle_p50_us"], 0)
            self.assertGreaterEqual(row["device_idle_p95_us"], row["device_idle_p50_us"])
        eager = output["modes"][0]["step_ms"]
        for row in output["modes"]:
            self.assertAlmostEqual(row["speed_up"], eager / row["step_ms"], delta=1e-3)
        self.assertGreater(output["read_bandwidth_gb_per_s"], 0.1)
        weights = sum(4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
                      for name, shape in harness.tensor_shapes(CONFIG).items() if "embed" not in name)
        self.assertAlmostEqual(output["weight_bytes"], weights, delta=1000)  # and the RoPE frequencies

    def test_decode_staggers_more_sequences_than_fit_a_step(self):
        output = self.bench("decode", "--steps", "4", "--warmup-tokens", "2", "--graphs", "full", "--max-num-tokens", "16")
        self.assertEqual([row["mode"] for row in output["modes"]], ["full"])
        self.assertIsNone(output["modes"][0]["speed_up"])

    @harness.cpu_only("a GPU runs bursts by itself")
    def test_decode_times_no_bursts_where_the_host_runs_them(self):
        result = self.run_encore("bench", "decode", "--device", DEVICE, "--model", self.model, "--context", "8",
                                 "--burst-steps", "8", code=2)
        self.assertIn("--burst-steps", result.stderr.splitlines()[-1])

    def speculate(self, *arguments, **options):
        return self.run_encore("bench", "speculate", "--device", DEVICE, "--model", "stories", "--context", "12", "--steps", "12",
                               "--warmup-tokens", "2", "--runs", "1", *arguments, **options)

    def test_speculate_sets_a_step_beside_its_parts(self):
        output = json.loads(self.speculate("--draft-model", "stories-draft", "--batch", "2", "--speculative-tokens", "1,3",
                                           "--acceptance", "0.5,0.9", "--json").stdout)
        plain, c = output["plain_ms"], output["draft"]["c"]
        self.assertAlmostEqual(c, output["draft"]["step_ms"] / plain, places=3)
        self.assertEqual([row["speculative_tokens"] for row in output["drafts"]], [1, 3])
        for row in output["drafts"]:
            k, v = row["speculative_tokens"], row["v"]
            self.assertAlmostEqual(v, row["verify_ms"] / plain, places=3)
            self.assertEqual([point["acceptance"] for point in row["points"]], [0.5, 0.9])
            for point in row["points"]:
                a = point["acceptance"]
                expected = (1 - a ** (k + 1)) / (1 - a)
                self.assertAlmostEqual(point["expected_tokens"], expected, places=4)
                self.assertAlmostEqual(point["speed_up_with_free_checks"], expected / (c * k + 1), places=3)
                self.assertAlmostEqual(point["speed_up_predicted"], expected / (c * k + v), places=3)
                self.assertAlmostEqual(point["tokens_per_step"], expected, delta=0.3)
                self.assertAlmostEqual(point["speed_up"], point["tokens_per_s"] / output["plain_tokens_per_s"], places=3)
                self.assertAlmostEqual(point["share_of_predicted"], row["parts_ms"] / point["step_ms"], places=3)
            self.assertAlmostEqual(row["parts_ms"], row["verify_ms"] + k * output["draft"]["step_ms"], places=3)
            self.assertGreater(row["apart_ms"], 0)

    def test_speculate_takes_the_acceptance_that_it_is_given(self):
        by_length = ["--speculative-tokens", "3", "--synthetic-acceptance-length", "2.5"]
        output = json.loads(self.speculate(*by_length, "--json").stdout)
        self.assertIsNone(output["draft"])
        point, = output["drafts"][0]["points"]
        self.assertEqual(point["acceptance_rates"], [1, 0.5, 0])
        self.assertAlmostEqual(point["tokens_per_step"], 2.5, delta=0.2)
        self.assertIn("drafts are looked up: c = 0", self.speculate(*by_length).stdout)
        line = self.speculate("--speculative-tokens", "3", "--synthetic-acceptance-rates", "0.8,0.6", code=2).stderr.splitlines()[-1]
        self.assertIn("--synthetic-acceptance-rates has 2 numbers, and a step guesses 3 tokens", line)

    def test_drafts_sets_the_choice_of_each_step_beside_every_number_and_none(self):
        base = ["bench", "drafts", "--device", DEVICE, "--model", "stories", "--draft-model", "stories-draft", "--context", "12",
                "--steps", "4", "--warmup-tokens", "2", "--batches", "2,1", "--acceptance", "0.5,0.9"]
        output = json.loads(self.run_encore(*base, "--speculative-tokens", "1,2", "--without", "0.5", "--json").stdout)
        self.assertEqual(output["speculative_tokens"], [1, 2])
        self.assertEqual([(point["batch"], point["acceptance"]) for point in output["points"]],
                         [(1, 0.5), (1, 0.9), (2, 0.5), (2, 0.9)])
        for point in output["points"]:
            self.assertEqual(len(point["fixed_tokens_per_s"]), 2)
            best = max(point["none_tokens_per_s"], *point["fixed_tokens_per_s"])
            self.assertAlmostEqual(point["of_best"], point["chosen_tokens_per_s"] / best, places=3)
            self.assertAlmostEqual(point["of_none"], point["chosen_tokens_per_s"] / point["none_tokens_per_s"], places=3)
            self.assertLessEqual(point["chosen_drafts"], 2)
        self.assertAlmostEqual(output["least_of_best"], min(point["of_best"] for point in output["points"]), places=3)
        self.assertIn("lowest of none: ", self.run_encore(*base, "--speculative-tokens", "1").stdout)

    def stack(self, *arguments, **options):
        return self.run_encore("bench", "stack", "--device", DEVICE, "--model", "stories", "--context", "12", "--steps", "8",
                               "--warmup-tokens", "2", "--runs", "1", *arguments, **options)

    def test_stack_adds_one_optimization_in_each_row(self):
        output = json.loads(self.stack("--batches", "2,1", "--speculative-tokens", "3", "--json").stdout)
        self.assertEqual([result["batch"] for result in output["batches"]], [2, 1])
        for result in output["batches"]:
            rows = result["rows"]
            self.assertEqual([row["name"] for row in rows], ["eager", "+ persistent buffers", "+ recording (CUDA graph)",
                                                             "+ speculation (K 3, A 0.8)", "+ FP8"])
            self.assertGreater(result["num_buffers"], 20)
            for row, drafts in zip(rows, (False, False, False, True, True)):
                self.assertAlmostEqual(row["ms_per_token"], row["step_ms"] / row["tokens_per_step"], places=4)
                self.assertAlmostEqual(row["speed_up"], rows[0]["ms_per_token"] / row["ms_per_token"], places=3)
                self.assertAlmostEqual(row["tokens_per_step"], 2.95 if drafts else 1, delta=0.6 if drafts else 0)
            self.assertEqual([row["published_ms_per_token"] for row in rows], [48.5, None, 38.8, 15.1, 8.2])
        text = self.stack("--batches", "1").stdout
        self.assertIn("+ FP8", text)
        self.assertIn("5.91", text)
        self.assertIn("--acceptance 1.5", self.stack("--acceptance", "1.5", code=2).stderr.splitlines()[-1])

    def test_all_sequences_find_pages_where_few_steps_are_timed(self):
        few = ["--context", "128", "--warmup-tokens", "9", "--steps", "3", "--runs", "1", "--batch", "64"]
        self.run_encore("bench", "decode", "--device", DEVICE, "--model", self.model, "--graphs", "full", *few)

    def test_sleep_gives_the_same_tokens_at_both_depths(self):
        sleep = ["bench", "sleep", "--device", DEVICE, "--model", self.model, "--batch", "3", "--context", "40"]
        output = json.loads(self.run_encore(*sleep, "--times", "3", "--json").stdout)
        self.assertEqual([row["depth"] for row in output["depths"]], ["kv", "weights"])
        for row in output["depths"]:
            self.assertTrue(row["same_tokens"])
            self.assertEqual(row["recordings_made"], 0)
            self.assertEqual([len(row["sleeps_ms"]), len(row["wakes_ms"])], [3, 3])
            self.assertGreater(row["saved_bytes"], 0)
        kv, weights = output["depths"]
        self.assertEqual(kv["released_bytes"], output["memory"]["kv"])
        self.assertEqual(weights["released_bytes"], output["memory"]["kv"] + output["memory"]["weights"])
        self.assertRegex(self.run_encore(*sleep, "--depth", "kv", "--times", "2").stdout, r"(?m)^  kv +2 .* same$")

    def test_prefill_counts_tokens(self):
        output = self.bench("prefill", "--max-num-tokens", "64")
        self.assertEqual([row["mode"] for row in output["modes"]], ["eager", "piecewise", "full"])
        for row in output["modes"]:
            self.assertAlmostEqual(row["tokens_per_s"], 120 / row["ms"] * 1e3, delta=row["tokens_per_s"] * 1e-3)

    def test_modes_of_prefill_take_turns(self):
        log = self.work / "turns.jsonl"
        self.bench("prefill", "--max-num-tokens", "64", "--step-log", log)
        modes = [json.loads(line)["mode"] for line in log.read_text().splitlines()]
        turns = [mode for mode, _ in itertools.groupby(modes)]
        self.assertEqual(turns[:2], ["eager", "piecewise"])
        self.assertEqual(turns, turns[:len(turns) // 2] * 2)  # a run that warms up, and one that counts

    def test_mixed_steps_are_timed_beside_their_parts_and_eager_steps(self):
        result = self.run_encore("bench", "mixed", "--device", DEVICE, "--model", self.model, "--prompt-tokens", "24,40",
                                 "--decodes", "3", "--context", "17", "--runs", "1", "--json")
        output = json.loads(result.stdout)
        self.assertEqual((output["batch"], output["context"]), (3, 17))
        self.assertEqual([(row["prompt_tokens"], row["mode"]) for row in output["modes"]],
                         [(tokens, mode) for tokens in (24, 40) for mode in ("eager", "piecewise", "full")])
        self.assertEqual([row["ran"] for row in output["modes"]][:2], ["eager", "piecewise"])
        for i, row in enumerate(output["modes"]):
            self.assertAlmostEqual(row["of_eager"], row["mixed_ms"] / output["modes"][i - i % 3]["mixed_ms"], places=3)
            self.assertAlmostEqual(row["of_parts"], row["mixed_ms"] / (row["prompt_ms"] + row["attention_ms"]), places=3)
            self.assertAlmostEqual(row["delay_ms"], row["mixed_ms"] - row["decode_ms"], places=2)

    def test_attention_is_timed_case_by_case_without_a_model(self):
        common = ["bench", "attention", "--device", DEVICE, "--heads", "4", "--kv-heads", "2", "--head-dim", "32", "--dtype",
                  "f32", "--rotation-mb", "1", "--runs", "1", "--max-context", "64"]
        output = json.loads(self.run_encore(*common, "--lengths", "64,2x17,0", "--batch", "2", "--context", "5", "--json").stdout)
        self.assertEqual([case["sequences"] for case in output["cases"]], ["64,2x17,0", "2x5"])
        bytes_per_token = 2 * 2 * 32 * 4
        self.assertEqual([case["kv_bytes"] for case in output["cases"]], [98 * bytes_per_token, 10 * bytes_per_token])
        for case in output["cases"]:
            self.assertGreater(case["chain"]["us"], 0)
        narrow = json.loads(self.run_encore(*common, "--lengths", "64,2x17,0", "--kv-dtype", "fp8", "--json").stdout)
        self.assertEqual((narrow["dtype"], narrow["kv_dtype"]), ("f32", "fp8"))
        self.assertEqual(narrow["cases"][0]["kv_bytes"], 98 * bytes_per_token / 4)
        self.assertIn("f32 with KV in fp8", self.run_encore(*common, "--lengths", "16", "--kv-dtype", "fp8").stdout)
        self.assertIn("kv_dtype is auto, f32, f16, bf16 or fp8, not 'e4m3'",
                      self.run_encore(*common, "--lengths", "16", "--kv-dtype", "e4m3", code=2).stderr)
        self.assertIn("of read", self.run_encore(*common, "--lengths", "16").stdout)
        self.assertIn(ATTENTION, self.run_encore(*common, "--lengths", "16,0", "--rope").stdout)
        for wrong, says in (("65", "--max-context"), ("3x", "not a list"), ("9999x1", "more than 4096")):
            self.assertIn(says, self.run_encore(*common, "--lengths", wrong, code=2).stderr)

    def test_the_products_of_a_layer_are_timed_as_a_chain_beside_their_floor(self):
        common = ["bench", "linear", "--device", DEVICE, "--model", self.model, "--rotation-mb", "1", "--runs", "1"]
        output = json.loads(self.run_encore(*common, "--rows", "1,3", "--json").stdout)
        self.assertEqual([(case["products"], case["rows"]) for case in output["cases"]],
                         [(products, rows) for products in ("layer", "logits") for rows in (1, 3)])
        for case in output["cases"]:
            self.assertGreater(case["us"], 0)
            self.assertEqual(case["kernels"].count("linear."), 4 if case["products"] == "layer" else 1)
        self.assertRegex(self.run_encore(*common, "--rows", "2").stdout, r"(?m)^  layer +2 +\d.*linear\.\w+")

    def test_products_are_timed_in_every_format_beside_16_bits(self):
        common = ["bench", "linear", "--device", DEVICE, "--model", self.model, "--rotation-mb", "1", "--runs", "1"]
        output = json.loads(self.run_encore(*common, "--formats", "all", "--rows", "1,40", "--json").stdout)
        formats = ["16 bits", "W8A16, rows", "W8A8, rows", "W8A16, blocks", "W8A8, blocks"]
        by_weight = {}
        for case in output["formats"]:
            self.assertGreater(case["us"], 0)
            by_weight.setdefault((case["weight"], case["rows"]), []).append(case)
        self.assertEqual({case["format"] for case in output["formats"]}, set(formats))
        for cases in by_weight.values():
            has_base = cases[0]["format"] == "16 bits"
            for case in cases:
                self.assertEqual("over_16_bits" in case, has_base)
                if has_base:
                    self.assertAlmostEqual(case["over_16_bits"], case["us"] / cases[0]["us"], delta=1e-3 * case["over_16_bits"])
        # Blocks that keep siblings apart have products that 16 bits lacks, and lack the merged ones.
        whole = [cases for cases in by_weight.values() if len(cases) == len(formats)]
        self.assertGreater(len(whole), 0)
        self.assertIn("W8A8, rows", self.run_encore(*common, "--formats", "all", "--rows", "2").stdout)

    def test_sampling_is_timed_by_logits_setting_and_batch(self):
        common = ["bench", "sampling", "--device", DEVICE, "--vocabulary", "500", "--runs", "1"]
        output = json.loads(self.run_encore(*common, "--batch", "1,3", "--top-k", "5", "--json").stdout)
        self.assertEqual([(case["logits"], case["setting"], case["batch"]) for case in output["cases"]],
                         [(logits, "temperature 1, top-k 5", batch) for logits in ("normal", "peaked") for batch in (1, 3)])
        for case in output["cases"]:
            self.assertGreater(case["us"], 0)
        text = self.run_encore(*common, "--batch", "2").stdout
        self.assertRegex(text, r"(?m)^  peaked +greedy +\d")
        self.assertRegex(text, r"(?m)^  normal +temperature 0\.8, top-k 50, top-p 0\.9 +\d")
        self.assertIn("top_p is at least 0", self.run_encore(*common, "--top-p", "7", code=2).stderr)

    def test_collectives_are_timed_by_size(self):
        common = ["bench", "collectives", "--device", "cpu", "--columns", "64", "--calls", "4", "--runs", "1"]
        output = json.loads(self.run_encore(*common, "--tensor-parallel", "2", "--rows", "1,3", "--json").stdout)
        self.assertEqual([(case["rows"], case["bytes"]) for case in output["cases"]], [(1, 128), (3, 384)])
        for case in output["cases"]:
            for what in ("all_reduce_us", "then_norm_us", "fused_us"):
                self.assertGreater(case[what], 0)
        self.assertRegex(self.run_encore(*common, "--tensor-parallel", "2").stdout, r"(?m)^ +8 +1 +\d")
        self.assertIn("--tensor-parallel N", self.run_encore(*common, code=2).stderr)

    def test_the_table_is_for_people(self):
        text = self.run_encore("bench", "decode", "--device", DEVICE, "--model", self.model, "--context", "8", "--runs", "1",
                               "--steps", "2", "--warmup-tokens", "1", "--graphs", "none").stdout
        self.assertRegex(text, r"eager +eager +[\d.]+ +1\.00x")


class DoctorTest(CliTest):
    def test_it_says_what_to_run_on(self):
        self.assertIn("What that means", self.run_encore("doctor").stdout)
        output = json.loads(self.run_encore("doctor", "--json").stdout)
        self.assertIn(output["runs_on"], ("cpu", "cuda"))
        self.assertGreater(output["cpu"]["total_bytes"], 0)
        self.assertTrue(all(set(row) == {"what", "found", "remedy"} for row in output["findings"]))

    def test_it_says_what_is_in_the_tuning_cache(self):
        def finding(*arguments):
            output = json.loads(self.run_encore("doctor", "--json", *arguments).stdout)
            return next(row for row in output["findings"] if row["what"] == "tuning cache")

        self.assertEqual(finding("--tuning-cache", "off")["found"], "off")
        with tempfile.TemporaryDirectory() as directory:
            empty = finding("--tuning-cache", directory)
            self.assertEqual(empty["found"], f"{directory}: 0 choices for this device and build")
            Path(directory, "tuning-0.json").write_text("{")
            self.assertIn("tuning-0.json", finding("--tuning-cache", directory)["remedy"])
            Path(directory, "tuning-0.json").write_text('{"format": 1, "key": {"device": "another"}, "choices": {}}')
            self.assertIn("1 files of others", finding("--tuning-cache", directory)["found"])
            self.assertNotIn("cannot be written", finding("--tuning-cache", directory)["found"])
            Path(directory, "file").write_text("")
            blocked = finding("--tuning-cache", Path(directory, "file"))
            self.assertIn("cannot be written", blocked["found"])
            self.assertIn("--tuning-cache", blocked["remedy"])

    def test_it_says_which_shapes_fit(self):
        output = json.loads(self.run_encore("doctor", "--json").stdout)
        found = next(row["found"] for row in output["findings"] if row["what"].startswith("shapes that fit"))
        self.assertIn("llama-3.1-8b (16.1 GB)", found)
        self.assertIn("qwen3-0.6b (1.19 GB)", found)


if __name__ == "__main__":
    harness.main()
