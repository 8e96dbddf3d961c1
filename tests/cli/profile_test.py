"""profile and bench ladder: tables, JSON, and pages that load nothing."""

import html.parser
import json
import re

import harness
from harness import CliTest


class PageReader(html.parser.HTMLParser):
    """Counts tags, checks that they close, and collects what a browser would load."""

    VOID = {"meta", "line", "rect", "circle", "polyline", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.counts, self.loads = [], {}, []

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.loads += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in self.VOID or (tag in ("rect", "line", "circle") and not self.get_starttag_text().endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()


def read_page(path):
    reader = PageReader()
    text = path.read_text()
    reader.feed(text)
    reader.close()
    assert [tag for tag in reader.open if tag != "meta"] == [], reader.open
    assert reader.loads == [] and "url(" not in text and "@import" not in text
    return reader.counts


class ProfileTest(CliTest):
    def profile(self, *arguments):
        return self.run_encore("profile", "--device", "cpu", "--model", self.model, "--batch", "3", "--context", "20",
                               "--steps", "4", *arguments).stdout

    def test_json_adds_up_in_every_mode(self):
        output = json.loads(self.profile("--json"))
        self.assertEqual([mode["mode"] for mode in output["modes"]], ["eager", "piecewise", "full"])
        self.assertEqual([mode["walked"] for mode in output["modes"]], ["eager", "piecewise", "full"])
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
            self.assertEqual(set(traced["kernels"]), groups)  # every op has a floor, and every floor a kernel
            self.assertEqual(traced["host_calls"]["allocate call"]["count"], 0)
        self.assertTrue(any("linear [" in group for group in groups), groups)

    def test_every_mode_runs_the_same_kernels(self):
        output = json.loads(self.profile("--json"))
        counts = [{group: kernel["count"] for group, kernel in mode["traced"]["kernels"].items()} for mode in output["modes"]]
        self.assertEqual(counts[0], counts[1])
        self.assertEqual(counts[0], counts[2])

    def test_the_table_and_the_page_show_every_mode(self):
        page = self.work / "profile.html"
        text = self.profile("--html", page)
        for word in ("eager", "piecewise", "full", "overhead", "sampling", "over floor", "attention"):
            self.assertIn(word, text)
        counts = read_page(page)
        self.assertGreater(counts["rect"], 100)
        self.assertIn("attention", page.read_text())

    def test_one_mode_alone(self):
        output = json.loads(self.profile("--graphs", "full", "--json"))
        self.assertEqual([mode["mode"] for mode in output["modes"]], ["full"])


class LadderTest(CliTest):
    def ladder(self, *arguments):
        return self.run_encore("bench", "ladder", "--device", "cpu", "--model", self.model, "--max-batch-size", "8", "--runs",
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

    def test_a_longer_context_has_a_higher_floor(self):
        least_bytes = []
        for context in ("10", "1000"):
            output = json.loads(self.ladder("--decode-ladder", "2,8", "--context", context, "--json"))
            least_bytes.append(output["buckets"][0]["floor_us"] * output["read_bandwidth_gb_per_s"] * 1e3)
        kv_bytes = 2 * 990 * 2 * 2 * 2 * 64 * 4  # 2 sequences, 990 tokens more, 2 layers of K and V with 2 heads of 64 floats
        self.assertAlmostEqual(least_bytes[1] - least_bytes[0], kv_bytes, delta=kv_bytes * 1e-2)

    def test_the_table_and_the_page_plot_them(self):
        page = self.work / "ladder.html"
        text = self.ladder("--context", "20", "--html", page)
        self.assertIn("farthest above its floor", text)
        rows = re.findall(r"(?m)^ +\d+ +([\d.]+) +([\d.]+) .*? (#*)(\+*)$", text)
        self.assertEqual(len(rows), 4)
        longest = max(float(us) for us, *_ in rows)
        for us, floor_us, below, above in rows:
            self.assertAlmostEqual(len(below + above), float(us) / longest * 40, delta=1)
            self.assertAlmostEqual(len(below), min(float(floor_us), float(us)) / longest * 40, delta=1)
        counts = read_page(page)
        self.assertEqual(counts["polyline"], 3)


if __name__ == "__main__":
    harness.main()
