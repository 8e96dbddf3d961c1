"""profile and bench ladder: tables, JSON, and pages that load nothing."""

import json
import re

import harness
from harness import DEVICE, CliTest


def kernels_of_steps(mode):
    """Without what is launched between steps, for inputs and pages."""
    return {group: kernel for group, kernel in mode["traced"]["kernels"].items() if group != "write_inputs"}


class ProfileTest(CliTest):
    def profile(self, *arguments):
        return self.run_encore("profile", "--device", DEVICE, "--model", self.model, "--batch", "3", "--context", "20",
                               "--steps", "4", *arguments).stdout

    def test_json_adds_up_in_every_mode(self):
        output = json.loads(self.profile("--json"))
        self.assertEqual([mode["mode"] for mode in output["modes"]], ["eager", "piecewise", "full"])
        self.assertEqual([mode["ran"] for mode in output["modes"]], ["eager", "piecewise", "full"])
        self.assertGreater(output["floor_us"], 0)
        self.assertIsNone(output["no_tracer"])
        groups = set(output["floors"])
        for mode in output["modes"]:
            traced = mode["traced"]
            parts = sum(traced[part] for part in ("kernels_us", "copies_us", "gaps_us", "idle_us"))
            self.assertAlmostEqual(parts, traced["step_us"], delta=traced["step_us"] * 1e-3)
            kernels = sum(kernel["us"] for kernel in traced["kernels"].values())
            self.assertAlmostEqual(kernels, traced["kernels_us"], delta=traced["kernels_us"] * 1e-3)
            self.assertGreater(traced["sampling_us"], 0)
            self.assertEqual(set(kernels_of_steps(mode)), groups)  # every op has a floor, and every floor a kernel
            self.assertEqual(traced["host_calls"]["allocate call"]["count"], 0)
        self.assertTrue(any("linear [" in group for group in groups), groups)

    def test_every_mode_runs_the_same_kernels(self):
        output = json.loads(self.profile("--json"))
        counts = [{group: kernel["count"] for group, kernel in kernels_of_steps(mode).items()} for mode in output["modes"]]
        self.assertEqual(counts[0], counts[1])
        self.assertEqual(counts[0], counts[2])

    def test_ranks_are_timed_with_what_they_exchange(self):
        text = self.profile("--tensor-parallel", "2", "--graphs", "full")
        for op in ("all_reduce_add_rms_norm", "gather_logits", "own_candidates"):
            self.assertIn(op, text)

    def test_the_table_and_the_page_show_every_mode(self):
        page = self.work / "profile.html"
        text = self.profile("--html", page)
        for word in ("eager", "piecewise", "full", "overhead", "sampling", "over floor", "attention"):
            self.assertIn(word, text)
        drawn = harness.drawn(page)
        self.assertGreater(drawn.count("<rect"), 100)
        self.assertIn("attention", drawn)
        legend = re.search(r'<div class="legend">.*?</div>', drawn).group()
        colours = re.findall(r'<rect class="(c\d+)"', legend)
        self.assertGreater(len(colours), 8)
        self.assertEqual(len(set(colours)), len(colours))

    def test_the_timelines_fit_share_one_scale_and_have_a_host_lane(self):
        page = self.work / "timelines.html"
        self.profile("--html", page)
        drawings = re.findall(r'<svg class="steps".*?</svg>', harness.drawn(page), re.DOTALL)
        self.assertEqual(len(drawings), 3)
        scales = []
        for drawing in drawings:
            bars = re.findall(r'<rect class="(\w+)" x="([\d.]+)%" y="(\d+)" width="([\d.]+)%".*?<title>.*?, ([\d.]+) us', drawing)
            self.assertEqual(drawing.count("<rect"), len(bars))
            self.assertLessEqual(max(float(x) + float(width) for _, x, _, width, _ in bars), 100.001)
            host = {y for style, _, y, *_ in bars if style in ("call", "wait")}
            device = {y for style, _, y, *_ in bars if style not in ("call", "wait")}
            self.assertEqual(len(host), 1)
            self.assertGreater(min(map(int, host)), max(map(int, device)))
            *_, width, us = max(bars, key=lambda bar: float(bar[4]))
            scales.append(float(width) / float(us))
        for scale in scales:
            self.assertAlmostEqual(scale, scales[0], delta=scales[0] * 0.02)

    @harness.cpu_only("a GPU's launches are more than the program's, and it computes beside the host")
    def test_the_host_table_is_filled_on_the_cpu(self):
        modes = {mode["mode"]: mode for mode in json.loads(self.profile("--json"))["modes"]}
        kernels = sum(kernel["count"] for kernel in modes["eager"]["traced"]["kernels"].values())
        launches = {name: mode["traced"]["host_calls"]["launch call"] for name, mode in modes.items()}
        self.assertEqual(launches["eager"]["count"], kernels)
        inputs = modes["full"]["traced"]["kernels"].get("write_inputs", {"count": 0})["count"]
        self.assertEqual(launches["full"]["count"], 1 + inputs)
        for mode in modes.values():
            self.assertGreater(mode["host_enqueue_us"], 0)
            self.assertGreater(mode["host_cpu_us"], 0)
            traced = mode["traced"]
            calls = sum(call["us"] for call in traced["host_calls"].values())
            self.assertAlmostEqual(calls + traced["host_computing_us"] + traced["host_rest_us"], traced["host_step_us"],
                                   delta=traced["host_step_us"] * 1e-3)

    def test_parts_and_shares_add_up_to_the_step(self):
        output = json.loads(self.profile("--json"))
        for mode in output["modes"]:
            traced = mode["traced"]
            self.assertAlmostEqual(sum(part["us"] for part in traced["parts"].values()), traced["step_us"],
                                   delta=traced["step_us"] * 1e-3)
            self.assertEqual(traced["parts"]["reading weights"]["us"], output["weights_us"])
            self.assertAlmostEqual(sum(kernel["share"] for kernel in traced["kernels"].values()),
                                   traced["kernels_us"] / traced["step_us"], delta=1e-3)
        self.assertGreater(output["flops_us"], 0)
        text = self.profile()
        for line in ("reading weights", "computing", "gaps between kernels", "share", "GFLOP by themselves"):
            self.assertIn(line, text)

    def test_steps_with_prompts_are_profiled(self):
        for step, tokens, sequences in (("mixed", 3 + 40, 3 + 1), ("prompt", 40, 1)):
            output = json.loads(self.profile("--step", step, "--prompt-tokens", "40", "--json"))
            self.assertEqual(output["step"], step)
            self.assertEqual([mode["ran"] for mode in output["modes"]][:2], ["eager", "piecewise"])
            # Two layers; behind the last attention only the rows whose logits count go on.
            flops = {group: floor["flops"] for group, floor in output["floors"].items()}
            self.assertEqual(flops["fused_linear [512,128]"], 2 * 512 * 128 * 2 * tokens)
            self.assertEqual(flops["linear [128,256]"], 2 * 128 * 256 * (tokens + sequences))
            for mode in output["modes"]:
                self.assertTrue(any("attention" in group for group in mode["traced"]["kernels"]))
                self.assertGreater(mode["traced"]["gaps_us"], 0)
        text = self.profile("--step", "mixed", "--prompt-tokens", "40")
        self.assertIn("batch 3, context 20 and a prompt of 40 tokens", text)
        self.assertIn("--step mixed", self.run_encore("profile", "--device", DEVICE, "--prompt-tokens", "40", code=2).stderr)

    def test_steps_with_drafts_are_profiled(self):
        output = json.loads(self.profile("--speculative-tokens", "2", "--json"))
        flops = {group: floor["flops"] for group, floor in output["floors"].items()}
        self.assertEqual(flops["linear [128,256]"], 2 * 128 * 256 * (3 + 3) * (1 + 2))
        for mode in output["modes"]:
            self.assertEqual(mode["traced"]["kernels"]["lookup_drafts"]["count"], 1)
        text = self.profile("--speculative-tokens", "1,2", "--graphs", "full")
        self.assertIn("batch 3, context 20, 2 drafts each, on ", text)

    def test_one_mode_alone(self):
        output = json.loads(self.profile("--graphs", "full", "--json"))
        self.assertEqual([mode["mode"] for mode in output["modes"]], ["full"])


class LadderTest(CliTest):
    def ladder(self, *arguments):
        return self.run_encore("bench", "ladder", "--device", DEVICE, "--model", self.model, "--max-batch-size", "8", "--runs",
                               "1", *arguments).stdout

    def test_json_has_every_bucket_with_its_floor(self):
        output = json.loads(self.ladder("--decode-ladder", "1,3,8", "--context", "50", "--json"))
        rows = output["buckets"]
        self.assertEqual([row["bucket"] for row in rows], [1, 3, 8])
        for row in rows:
            self.assertGreater(row["us"], 0)
            self.assertAlmostEqual(row["over_floor"], row["us"] / row["floor_us"], delta=row["over_floor"] * 1e-3)
        self.assertLess(rows[0]["floor_us"], rows[2]["floor_us"])
        self.assertIsNone(rows[0]["change_of_time"])
        self.assertAlmostEqual(rows[1]["change_of_time"], rows[1]["us"] / rows[0]["us"] - 1, delta=1e-3)

    def test_steps_launch_by_launch_beside_them_say_up_to_where_a_replay_pays(self):
        prompts = ["--step", "prompt", "--dtype", "bf16", "--token-ladder", "2,4,8", "--max-num-tokens", "8"]
        for step, sizes in ((["--decode-ladder", "1,3,8"], [(1, 1), (2, 3), (4, 8)]), (prompts, [(2, 2), (3, 4), (5, 8)])):
            output = json.loads(self.ladder(*step, "--context", "20", "--beside", "eager", "--json"))
            rows = output["buckets"]
            self.assertEqual([(row["least"], row["bucket"]) for row in rows], sizes)
            self.assertEqual(rows[0]["least_eager_us"], rows[0]["eager_us"])
            for row in rows:
                mean = (row["least_eager_us"] + row["eager_us"]) / 2
                self.assertAlmostEqual(row["benefit"], mean / row["us"] - 1, delta=1e-3)
            paying = [row["bucket"] for row in rows if row["benefit"] > 0.01]
            self.assertEqual(output["pays_up_to"], paying[-1] if paying else None)
        text = self.ladder("--decode-ladder", "1,8", "--beside", "eager")
        self.assertIn("least eager us", text)
        self.assertIn("a replay pays ", text)
        self.assertNotIn("eager", self.ladder("--decode-ladder", "1,8"))

    def test_a_longer_context_has_more_bytes_to_read(self):
        least_bytes = []
        for context in ("10", "1000"):
            output = json.loads(self.ladder("--decode-ladder", "2,8", "--context", context, "--json"))
            least_bytes.append(output["buckets"][0]["least_bytes"])
        kv_bytes = 2 * 990 * 2 * 2 * 2 * 64 * 4  # 2 sequences, 990 tokens more, 2 layers of K and V with 2 heads of 64 floats
        # The page table is longer, too.
        self.assertAlmostEqual(least_bytes[1] - least_bytes[0], kv_bytes, delta=kv_bytes * 1e-3)

    def test_the_token_ladder_is_timed_by_prompts_of_its_sizes(self):
        prompts = ["--step", "prompt", "--dtype", "bf16", "--token-ladder", "8,32,64", "--max-num-tokens", "64"]
        output = json.loads(self.ladder(*prompts, "--json"))
        self.assertEqual((output["step"], output["max_num_tokens"]), ("prompt", 64))
        rows = output["buckets"]
        self.assertEqual([row["bucket"] for row in rows], [8, 32, 64])
        self.assertEqual(sorted(row["floor_us"] for row in rows), [row["floor_us"] for row in rows])
        self.assertIsNone(rows[0]["change_of_ratio"])
        self.assertAlmostEqual(rows[1]["change_of_ratio"], rows[1]["over_floor"] / rows[0]["over_floor"] - 1, delta=1e-3)
        page = self.work / "tokens.html"
        text = self.ladder(*prompts, "--html", page)
        self.assertRegex(text, r"(?m)^token ladder: .*prompts.*$")
        self.assertIn("farthest above its floor", text)
        drawn = harness.drawn(page)
        for words in ("The token ladder and its floor", ">tokens in the step, logarithmic</text>", "<title>32 tokens: "):
            self.assertIn(words, drawn)

    def test_a_size_above_the_longest_sequence_is_several_prompts(self):
        least_bytes = []
        for longest in ("64", "20"):  # four prompts of 16
            output = json.loads(self.ladder("--step", "prompt", "--dtype", "bf16", "--token-ladder", "64", "--max-num-tokens", "64",
                                            "--max-seq-len", longest, "--json"))
            least_bytes.append(output["buckets"][0]["least_bytes"])
        self.assertGreater(least_bytes[1], least_bytes[0])  # three more rows of logits

    def test_the_table_and_the_page_plot_them(self):
        page = self.work / "ladder.html"
        text = self.ladder("--context", "20", "--html", page)
        self.assertIn("farthest above its floor", text)
        rows = [line.split() for line in re.findall(r"(?m)^ +\d+ +[\d.]+ +[\d.]+ .*$", text)]
        self.assertEqual(len(rows), 4)
        longest = max(float(us) for _, us, *_ in rows)
        for _, us, floor_us, *rest in rows:
            bar = rest[-1] if set(rest[-1]) <= set("#+") else ""  # none beside a far longer one
            self.assertAlmostEqual(len(bar), float(us) / longest * 40, delta=1)
            self.assertAlmostEqual(bar.count("#"), min(float(floor_us), float(us)) / longest * 40, delta=1)
        self.assertEqual(harness.drawn(page).count("<polyline"), 3)

    def test_the_axes_are_logarithmic_and_labelled(self):
        page = self.work / "axes.html"
        text = self.ladder("--context", "20", "--decode-ladder", "1,2,3,6,8", "--html", page)
        self.assertIn("FLOP/s, whichever takes longer", text)
        drawings = re.findall(r"<svg.*?</svg>", harness.drawn(page), re.DOTALL)
        self.assertEqual(len(drawings), 2)
        for drawing, unit in zip(drawings, ("us a step", "time over floor")):
            self.assertIn(f">{unit}</text>", drawing)
            self.assertIn(">sequences in the step, logarithmic</text>", drawing)
            places = {int(size): float(x) for x, size in
                      re.findall(r'<circle class="bar" cx="([\d.]+)".*?<title>(\d+) sequences', drawing)}
            self.assertEqual(sorted(places), [1, 2, 3, 6, 8])
            doubling = places[2] - places[1]
            self.assertAlmostEqual(places[8] - places[1], 3 * doubling, delta=1)
            self.assertAlmostEqual(places[6] - places[3], doubling, delta=1)
            for size in (1, 2, 4, 8):
                self.assertRegex(drawing, rf'text-anchor="middle">{size}</text>')


if __name__ == "__main__":
    harness.main()
