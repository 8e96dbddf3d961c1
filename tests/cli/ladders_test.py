"""Ladders, step logs, tune and graphs: from the flags to the log, and from the log to the ladders."""

import bisect
import itertools
import json
import pathlib
import random
import re

import harness
from harness import DEVICE, CliTest


def padding(sizes, ladder):
    """Rows launched for nothing by those at or under the largest size."""
    return sum(ladder[bisect.bisect_left(ladder, size)] - size for size in sizes if size <= ladder[-1])


def by_matching(steps):
    """What each ladder is asked for."""
    decode = [generation for context, generation in steps if context == 0 and generation > 0]
    return decode, [context + generation for context, generation in steps if context > 0]


class LadderTest(CliTest):
    def setUp(self):
        self.log = self.work / f"{self.id().rsplit('.', 1)[-1]}.jsonl"

    def write_log(self, steps):
        self.log.write_text("".join(
            json.dumps({"context_tokens": context, "generation_requests": generation}) + "\n"
            for context, generation in steps))

    def json_of(self, *arguments):
        return json.loads(self.run_encore(*arguments, "--json").stdout)


class LadderFlagsTest(LadderTest):
    base = ["generate", "--device", DEVICE, "--ignore-eos", "--max-tokens", "6", "--prompt-ids", "5,6,7,8,9"]

    def buckets(self, *arguments):
        output = self.json_of(*self.base, "--model", self.model, *arguments)
        return {step["bucket_tokens"] for step in output["stats"]["steps"] if step["q"] == 0}, output

    def test_a_name_or_a_list_sets_the_sizes_and_not_the_ids(self):
        default, first = self.buckets()
        named, second = self.buckets("--token-ladder", "pow2", "--max-num-tokens", "64")
        listed, third = self.buckets("--token-ladder", "7,64", "--decode-ladder", "1,2,3", "--max-batch-size", "3")
        self.assertEqual((default, named, listed), ({8}, {8}, {7}))
        self.assertEqual(first["ids"], second["ids"])
        self.assertEqual(first["ids"], third["ids"])
        self.assertEqual(third["stats"]["recordings"]["full"]["recordings"], 3)

    def test_steps_above_the_ladder_run_eager_and_say_so(self):
        _, output = self.buckets("--token-ladder", "1,4", "--above-ladder", "eager")
        self.assertEqual([step["reason"] for step in output["stats"]["steps"] if step["q"] == 0], ["above_ladder"])

    def test_steps_above_the_ladder_are_split(self):
        _, output = self.buckets("--token-ladder", "1,4", "--graphs", "piecewise")
        steps = output["stats"]["steps"]
        self.assertEqual([step["reason"] for step in steps], [""] * len(steps))
        self.assertEqual(sum(step["tokens"] for step in steps), 5 + 5)
        self.assertLessEqual(max(step["bucket_tokens"] for step in steps), 4)

    def test_forbidden_eager_steps_are_an_error_before_anything_runs(self):
        arguments = [*self.base, "--model", self.model, "--eager-steps", "forbid"]
        self.run_encore(*arguments, "--token-ladder", "1,4")
        line = self.error_line_of_start(*arguments, "--token-ladder", "1,4", "--above-ladder", "eager")
        self.assertIn("a mixed step of 5 tokens and 1 sequence (above_ladder: ", line)
        self.assertIn("--above-ladder split", line)
        self.assertIn("(disabled: ", self.error_line_of_start(*arguments, "--graphs", "none"))
        self.assertIn("lru:2", self.error_line_of_start(*arguments, "--decode-ladder", "lru:2"))

    def error_line_of_start(self, *arguments):
        """The error, after whatever the start-up said."""
        result = self.run_encore(*arguments, code=2)
        self.assertEqual(result.stdout, "")
        return result.stderr.splitlines()[-1]

    def test_a_list_ends_at_the_largest_step_with_a_note(self):
        result = self.run_encore(*self.base, "--model", self.model, "--decode-ladder", "2,4,9,16", "--max-batch-size", "6",
                                 "--json")
        self.assertEqual(json.loads(result.stdout)["stats"]["recordings"]["full"]["recordings"], 3)
        self.assertIn("--decode-ladder: 6 takes the place of the sizes above it, as no step is larger", result.stderr)
        path = self.work / "larger.yaml"
        path.write_text("decode_ladder: [1, 4, 8]\nmax_batch_size: 8\n")
        result = self.run_encore(*self.base, "--model", self.model, "--config", path, "--max-batch-size", "4")
        self.assertIn("4 takes the place of the sizes above it", result.stderr)

    def test_bad_ladders_name_the_flag_and_the_schedules(self):
        base = [*self.base, "--model", self.model]
        line = self.error_line(*base, "--decode-ladder", "vllm-new", code=2)
        self.assertIn("--decode-ladder", line)
        self.assertIn("encore, encore-decode, pow2, step:N, vllm-old, vllm, trtllm, sglang, trtllm-decode, sglang-decode", line)
        self.assertIn("--token-ladder", self.error_line(*base, "--token-ladder", "0,8", code=2))


class StepLogTest(LadderTest):
    def test_generate_logs_a_line_a_step(self):
        output = self.json_of("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "5,6,7,8,9",
                              "--ignore-eos", "--max-tokens", "6", "--step-log", self.log)
        steps = [json.loads(line) for line in self.log.read_text().splitlines()]
        self.assertEqual([step["step"] for step in steps], list(range(6)))
        self.assertEqual(set(steps[0]), {"step", "context_tokens", "generation_requests", "tokens", "sequences", "kv_tokens",
                                         "mode", "bucket", "padding", "host_us", "gpu_us"})
        self.assertEqual([step["context_tokens"] for step in steps], [5, 0, 0, 0, 0, 0])
        self.assertEqual([step["generation_requests"] for step in steps], [0, 1, 1, 1, 1, 1])
        # Not every device can record a mixed step whole.
        self.assertIn(steps[0]["mode"], ("piecewise", "full"))
        self.assertEqual([step["mode"] for step in steps[1:]], ["full"] * 5)
        self.assertEqual([step["bucket"] for step in steps], [8, 1, 1, 1, 1, 1])
        self.assertEqual(sum(step["padding"] for step in steps),
                         sum(step["padding"] for step in output["stats"]["steps"]))

    def test_an_eager_step_has_its_reason_and_no_bucket(self):
        self.run_encore("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "5,6,7,8,9",
                        "--ignore-eos", "--max-tokens", "2", "--token-ladder", "4", "--above-ladder", "eager",
                        "--step-log", self.log)
        step = json.loads(self.log.read_text().splitlines()[0])
        self.assertEqual((step["mode"], step["reason"], step["padding"]), ("eager", "above_ladder", 0))
        self.assertNotIn("bucket", step)
        report = self.json_of("graphs", "--log", self.log)
        self.assertEqual(report["logged"]["reasons"], {"above_ladder": 1})
        self.assertEqual(report["logged"]["modes"], {"eager": 1, "full": 1})
        self.assertIn("above_ladder", self.run_encore("graphs", "--log", self.log).stdout)

    def test_both_benchmarks_log_and_their_logs_are_tuned_by_time(self):
        for what, runs in (("decode", ["--runs", "1", "--steps", "4"]), ("prefill", ["--runs", "1"])):
            self.run_encore("bench", what, "--device", DEVICE, "--model", self.model, "--batch", "3", "--context", "20",
                            "--max-num-tokens", "16", "--step-log", self.log, *runs)
            steps = [json.loads(line) for line in self.log.read_text().splitlines()]
            self.assertTrue(any(step["context_tokens"] > 0 for step in steps))
            self.assertTrue(all(step["gpu_us"] > 0 for step in steps))
            self.assertEqual(self.json_of("graphs", "--log", self.log)["steps"], len(steps))
        self.assertEqual(self.json_of("tune", self.log, "--budget", "2", "--by", "padding")["tokens"]["by"], "padding")

    def test_an_unwritable_log_is_named_before_anything_is_loaded(self):
        line = self.error_line("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "1", "--step-log",
                               self.work / "no" / "log", code=2)
        self.assertIn(str(self.work / "no" / "log"), line)


class TuneTest(LadderTest):
    def test_the_sizes_are_the_best_of_all_sets_of_sizes(self):
        draw = random.Random(5)
        for trial in range(6):
            steps = [(draw.choice([0, 0, draw.randint(1, 9)]), draw.randint(1, 4 + trial)) for _ in range(60)]
            self.write_log(steps)
            for budget in (1, 2, 3, 4):
                output = self.json_of("tune", self.log, "--budget", budget, "--without-one")
                for key, sizes in zip(("decode", "tokens"), by_matching(steps)):
                    distinct = sorted(set(sizes))
                    best = min(padding(sizes, sorted({*chosen, distinct[-1]}))
                               for chosen in itertools.combinations(distinct, min(budget, len(distinct)) - 1))
                    with self.subTest(trial=trial, budget=budget, ladder=key):
                        self.assertEqual(output[key]["padding"], best)
                        self.assertEqual(padding(sizes, output[key]["sizes"]), best)
                        self.assertLessEqual(len(output[key]["sizes"]), budget)
                        self.assertEqual(output[key]["hit_rate"], 1)

    def test_a_lone_sequence_has_a_size_unless_told_otherwise(self):
        self.write_log([(0, size) for size in [7] * 9 + [8] * 9 + [9] * 9 + [1]] + [(5, 3), (1, 0)])
        for budget, sizes, without in ((1, [9], [9]), (2, [1, 9], [7, 9]), (3, [1, 7, 9], [7, 8, 9])):
            tuned = self.json_of("tune", self.log, "--budget", budget)
            self.assertEqual(tuned["decode"]["sizes"], sizes)
            best = self.json_of("tune", self.log, "--budget", budget, "--without-one")
            self.assertEqual(best["decode"]["sizes"], without)
            self.assertEqual(best["tokens"], tuned["tokens"])

    def test_engines_are_priced_by_what_they_take_for_such_steps(self):
        sizes = [3] * 10 + [11] * 10 + [130]
        self.write_log([(0, size) for size in sizes] + [(100, 3), (5, 1)])
        ladders = {"trtllm-decode": [1, 2, 4, *range(8, 129, 8), 256], "sglang-decode": [1, 2, 4, 8, 12, *range(16, 257, 8)]}
        for output in (self.json_of("tune", self.log, "--budget", 4), self.json_of("graphs", "--log", self.log)):
            rows = {row["name"]: row for row in output["decode"]["schedules"]}
            self.assertEqual(set(rows) & {"trtllm", "sglang"}, set())
            for name, ladder in ladders.items():
                self.assertEqual(rows[name]["padding"], padding(sizes, ladder))
            names = {row["name"] for row in output["tokens"]["schedules"]}
            self.assertEqual(names, {"encore", "pow2", "step:64", "vllm-old", "vllm", "trtllm", "sglang"})
        limited = self.json_of("tune", self.log, "--budget", 4, "--max-batch-size", 130)["decode"]["schedules"]
        self.assertEqual({row["largest"] for row in limited}, {130})

    def test_the_optimum_never_pads_more_than_a_schedule_of_as_many_sizes(self):
        draw = random.Random(6)
        steps = [(draw.choice([0, draw.randint(1, 3000)]), draw.randint(1, 300)) for _ in range(3000)]
        self.write_log(steps)
        sizes = dict(zip(("decode", "tokens"), by_matching(steps)))
        schedules = self.json_of("tune", self.log, "--budget", 8)
        for key in sizes:
            for row in schedules[key]["schedules"]:
                self.assertLessEqual(row["optimum_padding"], row["padding"])
                largest = {"decode": "--max-batch-size", "tokens": "--max-num-tokens"}[key]
                tuned = self.json_of("tune", self.log, "--budget", row["num_sizes"], largest, row["largest"],
                                     "--without-one")[key]
                self.assertEqual(tuned["padding"], row["optimum_padding"])
                self.assertEqual(tuned["sizes"][-1], row["largest"])
                self.assertAlmostEqual(tuned["hit_rate"], row["hit_rate"], 5)

    def test_stdout_is_yaml_whose_ladders_the_flags_take(self):
        self.write_log([(0, size) for size in range(1, 40)] + [(size, 2) for size in range(1, 90)])
        tune = ["tune", self.log, "--budget", 4, "--without-one"]
        yaml = self.run_encore(*tune).stdout
        keys = dict(line.split(": ") for line in yaml.splitlines() if not line.startswith("#"))
        # Larger steps than the log's may come: no limit keeps them away.
        self.assertEqual(set(keys), {"decode_ladder", "token_ladder", "above_ladder"})
        self.assertEqual(keys.pop("above_ladder"), "eager")
        ladders = {key: json.loads(value) for key, value in keys.items()}
        report = self.json_of("graphs", "--log", self.log, "--decode-ladder", ",".join(map(str, ladders["decode_ladder"])),
                              "--token-ladder", ",".join(map(str, ladders["token_ladder"])))
        output = self.json_of(*tune)
        for key in ("decode", "tokens"):
            self.assertEqual(report[key]["padding"], output[key]["padding"])
            self.assertEqual(report[key]["padding"], report[key]["optimum_padding"])
        path = self.work / "ladders.yaml"
        prices = self.run_encore(*tune, "--out", path).stdout
        self.assertEqual(path.read_text(), yaml)
        self.assertIn("sglang", prices)
        self.run_encore("generate", "--device", DEVICE, "--config", path, "--prompt-ids", "1,2", "--max-tokens", 2)

    def test_limits_that_were_given_are_those_of_the_result(self):
        self.write_log([(0, size) for size in range(1, 40)] + [(size, 2) for size in range(1, 90)])
        yaml = self.run_encore("tune", self.log, "--budget", 4, "--max-batch-size", 64, "--max-num-tokens", 128).stdout
        keys = dict(line.split(": ") for line in yaml.splitlines() if not line.startswith("#"))
        self.assertEqual((keys["max_batch_size"], keys["max_num_tokens"]), ("64", "128"))
        self.assertNotIn("above_ladder", keys)
        self.assertEqual((json.loads(keys["decode_ladder"])[-1], json.loads(keys["token_ladder"])[-1]), (64, 128))

    def test_as_many_sizes_as_their_recordings_fit_into_memory(self):
        self.write_log([(0, size) for size in range(1, 40)] + [(size, 2) for size in range(1, 90)])
        last = None
        for memory in ("500kB", "2MB", "1GB"):
            output = self.json_of("tune", self.log, "--memory", memory, "--model", self.model, "--device", "cpu",
                                  "--by", "padding", "--without-one")
            decode, tokens = output["decode"], output["tokens"]
            budget = float(memory[:-2]) * {"k": 1e3, "M": 1e6, "G": 1e9}[memory[-2]]
            self.assertLessEqual(decode["bytes"] + tokens["bytes"], budget)
            for part in (decode, tokens):  # each is the best of its number of sizes
                best = self.json_of("tune", self.log, "--budget", len(part["sizes"]), "--by", "padding", "--without-one")
                self.assertEqual(part["padding"], best["decode" if part is decode else "tokens"]["padding"])
            padding = decode["padding"] + tokens["padding"]
            if last is not None:
                self.assertLess(padding, last)
            last = padding
        self.assertEqual(last, 0)
        text = self.run_encore("tune", self.log, "--memory", "2MB", "--model", self.model, "--device", "cpu").stdout
        self.assertIn("in 2MB together", text)
        for arguments, says in ((["--memory", "1kB", "--model", self.model], "give more memory"),
                                (["--memory", "2MB"], "--model"), (["--memory", "5%", "--model", self.model], "bytes"),
                                (["--memory", "some", "--model", self.model], "--memory"),
                                (["--memory", "2MB", "--budget", 3, "--model", self.model], "--budget")):
            self.assertIn(says, self.error_line("tune", self.log, *arguments, code=2))

    def test_a_ladder_ends_where_replays_stop_paying(self):
        self.write_log([(0, size) for size in range(1, 40)] + [(size, 2) for size in range(1, 90)])
        times = {step: self.work / f"{step}.json" for step in ("decode", "prompt")}
        times["decode"].write_text(json.dumps({"verb": "bench ladder", "step": "decode", "pays_up_to": 24}))
        times["prompt"].write_text(json.dumps({"verb": "bench ladder", "step": "prompt", "pays_up_to": 512}))
        flags = ["tune", self.log, "--budget", 4, "--times", times["decode"], "--times", times["prompt"]]
        output = self.json_of(*flags)
        self.assertEqual((output["decode"]["sizes"][-1], output["tokens"]["sizes"][-1]), (24, 91))
        self.assertAlmostEqual(output["decode"]["hit_rate"], 24 / 39, 5)
        yaml = self.run_encore(*flags).stdout
        self.assertIn("where replays stop paying", yaml)
        self.assertIn("above_ladder: eager", yaml)
        limited = self.json_of(*flags, "--max-batch-size", 30)
        self.assertEqual(limited["decode"]["sizes"][-1], 30)
        times["decode"].write_text(json.dumps({"verb": "bench ladder", "step": "decode", "pays_up_to": None}))
        result = self.run_encore(*flags, "--json")
        self.assertIn("pays at no size", result.stderr)
        self.assertEqual(json.loads(result.stdout)["decode"]["sizes"][-1], 39)
        times["decode"].write_text("{}")
        self.assertIn("--beside eager", self.error_line(*flags, code=2))

    def test_times_weigh_where_the_log_has_them(self):
        # Up to 8 sequences a step takes as long; from there on each one costs.
        lines = []
        for size, times in ((1, 100), (8, 100), (16, 10), (17, 10)):
            us = 10 + 5 * max(0, size - 8)
            lines += [json.dumps({"context_tokens": 0, "generation_requests": size, "gpu_us": us})] * times
        self.log.write_text("\n".join(lines))
        by_time = self.json_of("tune", self.log, "--budget", 3, "--without-one")["decode"]
        self.assertEqual((by_time["by"], by_time["sizes"]), ("time", [8, 16, 17]))
        self.assertAlmostEqual(by_time["total_us"], 200 * 10 + 10 * 50 + 10 * 55, 3)
        by_padding = self.json_of("tune", self.log, "--budget", 3, "--by", "padding", "--without-one")["decode"]
        self.assertEqual((by_padding["by"], by_padding["sizes"]), ("padding", [1, 8, 17]))
        self.assertLess(by_padding["padding"], by_time["padding"])

    def test_a_log_without_one_kind_of_step_leaves_its_ladder_out(self):
        self.write_log([(0, 3), (0, 5), (0, 0)])
        output = self.json_of("tune", self.log, "--budget", 1)
        self.assertEqual(output["decode"]["sizes"], [5])
        self.assertEqual(output["tokens"], {"sizes": [], "padding": 0, "steps": 0})
        self.assertNotIn("token_ladder", self.run_encore("tune", self.log, "--budget", 1).stdout)

    def test_tensorrt_llms_iterations_are_read(self):
        iterations = [{"iter": 1, "iterLatencyMS": 5.0, "inflightBatchingStats": {"numCtxTokens": 40, "numGenRequests": 2}},
                      {"iter": 2, "iterLatencyMS": 6.0, "inflightBatchingStats": {"numCtxTokens": 0, "numGenRequests": 3}}]
        for text in ("\n".join(map(json.dumps, iterations)), json.dumps(iterations, indent=1),
                     "\n".join(json.dumps(iteration["inflightBatchingStats"]) for iteration in iterations)):
            self.log.write_text(text)
            output = self.json_of("tune", self.log, "--budget", 1)
            self.assertEqual((output["decode"]["sizes"], output["tokens"]["sizes"]), ([3], [42]))

    def test_a_file_that_is_no_step_log_is_said_to_be_none(self):
        self.log.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\n")
        for verb in (["tune", self.log, "--budget", 2], ["graphs", "--log", self.log]):
            self.assertIn("is not a step log: give a JSON object a line", self.error_line(*verb, code=2))
            self.assertIn("/dev/zero: is not text", self.error_line(*(str(a).replace(str(self.log), "/dev/zero")
                                                                     for a in verb), code=2))

    def test_a_byte_order_mark_is_passed_over(self):
        self.write_log([(0, 3)])
        self.log.write_text("\ufeff" + self.log.read_text(), "utf-8")
        self.assertEqual(self.json_of("tune", self.log, "--budget", 1)["decode"]["sizes"], [3])

    def test_a_bad_line_is_named(self):
        self.write_log([(1, 0)])
        good = self.log.read_text()
        for bad in ('{"context_tokens": 1}', "{", '{"context_tokens": -1, "generation_requests": 0}', "{}"):
            self.log.write_text(good + bad + "\n")
            for verb in (["tune", self.log, "--budget", 2], ["graphs", "--log", self.log]):
                self.assertIn(f"{self.log}:2", self.error_line(*verb, code=2))
        self.log.write_text("")
        self.assertIn("no steps", self.error_line("tune", self.log, "--budget", 2, code=2))
        self.assertIn("nowhere", self.error_line("tune", self.work / "nowhere", "--budget", 2, code=2))
        self.write_log([(1, 0)])
        self.assertIn("--memory BYTES", self.error_line("tune", self.log, code=2))
        self.assertIn("no times", self.error_line("tune", self.log, "--budget", 2, "--by", "time", code=2))


class GraphsTest(LadderTest):
    steps = [(0, size) for size in (1, 1, 2, 3, 5, 8, 20)] + [(100, 4), (3, 3), (700, 0)]

    def test_hit_rate_and_padding_are_those_of_the_ladders(self):
        self.write_log(self.steps)
        report = self.json_of("graphs", "--log", self.log, "--decode-ladder", "1,4,8", "--token-ladder", "8,128")
        self.assertEqual((report["steps"], report["hits"], report["hit_rate"]), (10, 8, 0.8))
        self.assertEqual(report["reasons"], {"above_ladder": 2})
        self.assertEqual(report["decode"]["hits"], 6)
        self.assertEqual(report["decode"]["padding"], 2 + 1 + 3)
        self.assertEqual(report["tokens"]["padding"], 24 + 2)
        self.assertEqual(report["padding"], 6 + 26)
        self.assertEqual(report["decode"]["sizes"], [1, 4, 8])
        self.assertEqual(report["tokens"]["largest_step"], 700)
        text = self.run_encore("graphs", "--log", self.log, "--decode-ladder", "1,4,8", "--token-ladder", "8,128").stdout
        self.assertIn("hit rate 80.00 %", text)

    def test_coverage_is_that_of_every_admissible_step(self):
        sizes = ["--max-batch-size", "3", "--max-num-tokens", "8"]
        ladders = ["--decode-ladder", "1,2", "--token-ladder", "2,4"]
        # Mixed steps: one sequence of 2 to 8 tokens, two of 3 to 8, three of 4 to 8.
        split = self.json_of("graphs", "--coverage", *sizes, *ladders)["coverage"]
        self.assertEqual((split["limits"]["max_batch_size"], split["limits"]["max_mixed_tokens"]), (2, 4))
        self.assertEqual((split["admissible"], split["eager"], split["share"]), (2 + 3 + 2, 0, 1))
        self.assertEqual(split["most_padding"]["mixed"]["padding"], 1)
        eager = self.json_of("graphs", "--coverage", *sizes, *ladders, "--above-ladder", "eager")["coverage"]
        self.assertEqual((eager["admissible"], eager["eager"]), (3 + 7 + 6 + 5, 1 + 4 + 4 + 5))
        self.assertEqual((eager["first_eager"]["sequences"], eager["first_eager"]["reason"]), (3, "above_ladder"))
        text = self.run_encore("graphs", "--coverage", *sizes, *ladders, "--above-ladder", "eager").stdout
        self.assertIn("33.33 % of 21 admissible steps are replayed; 14 eager", text)
        line = self.error_line("graphs", "--coverage", *sizes, *ladders, "--above-ladder", "eager", "--eager-steps",
                               "forbid", code=2)
        self.assertIn("14 of 21 admissible steps have no recording, the first a decode step of 3 sequences", line)
        self.write_log(self.steps)
        report = self.json_of("graphs", "--log", self.log, "--decode-ladder", "1,4,8", "--token-ladder", "8,128")
        self.assertEqual(report["coverage"]["limits"]["max_batch_size"], 8)

    def test_the_rules_are_one_table(self):
        rules = self.json_of("graphs", "--eligibility")["rules"]
        by_name = {rule["name"]: rule for rule in rules}
        self.assertEqual((by_name["above_ladder"]["full"], by_name["above_ladder"]["piecewise"]), (False, False))
        self.assertEqual((by_name["unsupported_op"]["full"], by_name["unsupported_op"]["piecewise"]), (False, True))
        self.assertIn("no_exact_size", self.run_encore("graphs", "--eligibility").stdout)

    def test_the_header_shows_the_table_of_rules(self):
        header = pathlib.Path(__file__).resolve().parents[2] / "src/runtime/dispatch.h"
        comment = " ".join(header.read_text().replace("//", " ").split())
        for rule in self.json_of("graphs", "--eligibility")["rules"]:
            answers = ["yes" if rule[way] else "no" for way in ("full", "piecewise")]
            self.assertIn(" ".join([rule["name"], *answers, rule["why"]]), comment)

    def test_a_schedule_is_known_by_its_name(self):
        self.write_log(self.steps)
        report = self.json_of("graphs", "--log", self.log, "--decode-ladder", "vllm", "--token-ladder", "trtllm",
                              "--max-batch-size", "512", "--max-num-tokens", "3072")
        self.assertEqual((report["decode"]["num_sizes"], report["tokens"]["num_sizes"]), (51, 20))
        self.assertEqual(report["hit_rate"], 1)

    def test_the_page_draws_the_report(self):
        self.write_log(self.steps)
        self.log.write_text(self.log.read_text() + json.dumps(
            {"context_tokens": 0, "generation_requests": 2, "mode": "<script>", "reason": "a & b"}) + "\n")
        path = self.work / "graphs.html"
        self.run_encore("graphs", "--log", self.log, "--html", path, "--decode-ladder", "1,4,8")
        page = harness.drawn(path)
        self.assertNotIn("<script>", page)
        self.assertIn("a &amp; b", page)
        self.assertEqual(page.count("<svg"), 7)  # two a ladder, modes, fallbacks, admissible steps
        self.assertEqual(len(re.findall(r"<title>bucket \d+</title>", page.split("Steps with prompts")[0])), 3)

    def test_a_page_of_few_or_large_steps_is_drawn_as_well(self):
        for steps in ([(0, 1)], [(1, 0)], [(0, 0), (0, 1)], [(1 << 20, 0), (1, 0)], [(0, 1 << 19)]):
            self.write_log(steps)
            path = self.work / "few.html"
            self.run_encore("graphs", "--log", self.log, "--html", path)
            page = harness.drawn(path)
            self.assertEqual(page.count("None in the log."), 2 - any(context for context, _ in steps) - any(
                generating and not context for context, generating in steps))
            for x, width in re.findall(r'<rect class="(?:bar|miss)" x="([\d.-]+)" [^>]*width="([\d.]+)"', page):
                self.assertLessEqual(float(x) + float(width), 940)

    @harness.cpu_only("what a library does for an op may be several nodes on a GPU")
    def test_the_estimate_is_what_gets_recorded(self):
        sizes = ["--max-batch-size", "4", "--max-num-tokens", "32"]
        estimate = self.json_of("graphs", "--estimate", "--device", DEVICE, "--model", self.model, *sizes, "--decode-ladder", "pow2",
                                "--token-ladder", "16,32")
        output = self.json_of("generate", "--device", DEVICE, "--model", self.model, "--prompt-ids", "1,2", "--max-tokens",
                              "2", *sizes, "--decode-ladder", "pow2", "--token-ladder", "16,32")
        recorded = output["stats"]["recordings"]
        pieces = [estimate[part]["total"] for part in ("tokens", "tails")]
        self.assertEqual(estimate["full"]["total"]["recordings"], recorded["full"]["recordings"])
        self.assertEqual(sum(part["recordings"] for part in pieces), recorded["pieces"]["recordings"])
        self.assertEqual(estimate["full"]["total"]["nodes"], recorded["full"]["nodes"])
        self.assertEqual(sum(part["nodes"] for part in pieces), recorded["pieces"]["nodes"])
        self.assertEqual([row["size"] for row in estimate["full"]["sizes"]], [1, 2, 4])
        self.assertGreater(estimate["total"]["bytes"], 0)
        self.assertIn("arena", self.run_encore("graphs", "--estimate", "--model", self.model).stdout)

    def test_the_features_are_listed_with_the_tests_that_show_them(self):
        features = self.json_of("graphs", "--compatibility")["features"]
        self.assertIn("a prefix cache", [row["feature"] for row in features])
        text = self.run_encore("graphs", "--compatibility").stdout
        for row in features:
            self.assertIn(row["test"], text)

    @harness.cpu_only("a build with CUDA has its kernels without a GPU")
    def test_the_estimate_says_whose_kernels_it_counts_and_counts_no_others(self):
        base = ["graphs", "--estimate", "--model", self.model, "--max-batch-size", "2"]
        self.assertIn("estimated for kernels of the CPU", self.run_encore(*base, "--device", "cpu").stdout)
        self.assertEqual(self.json_of(*base, "--device", "cpu")["kernels"], "cpu")
        if "CUDA none" in self.run_encore("--version").stdout:
            self.assertIn("--device cpu", self.error_line(*base, "--device", "cuda", code=7))

    def test_what_is_missing_is_named(self):
        self.assertIn("--log", self.error_line("graphs", code=2))
        self.write_log(self.steps)
        self.assertIn("--estimate", self.error_line("graphs", "--estimate", "--log", self.log, code=2))
        self.assertIn("--decode-ladder", self.error_line("graphs", "--log", self.log, "--decode-ladder", "big", code=2))
        self.assertIn("cannot write", self.error_line("graphs", "--log", self.log, "--html", self.work / "no" / "x", code=2))


if __name__ == "__main__":
    harness.main()
