"""serve: /metrics, as Prometheus and the dashboard read it."""

import json
import re
import shutil
import subprocess

import harness
import metrics_format
from harness import SOURCE, CliTest
from server_process import Server


class MetricsTest(CliTest):
    def test_metrics_are_as_prometheus_wants_them(self):
        with Server("--max-batch-size", 2) as server:
            server.complete(prompt="One day", max_tokens=4)
            text = server.request("GET", "/metrics")[2]
        self.assertEqual(metrics_format.problems_of(text), [])
        if promtool := shutil.which("promtool"):
            checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
            self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_the_checker_of_metrics_finds_what_is_wrong(self):
        head = "# HELP a_total A\n# TYPE a_total counter\n"
        times = "# HELP t T\n# TYPE t histogram\n"
        self.assertEqual(metrics_format.problems_of(head + 'a_total{b="\\"c\\\\",d=""} 1\na_total 2e3\n'), [])
        self.assertEqual(metrics_format.problems_of(times + 't_bucket{le="1"} 1\nt_bucket{le="+Inf"} 2\nt_sum 3\nt_count 2\n'), [])
        for text in ("a_total 1\n", head + "a_total 1", head + "a_total 1\na_total 1\n", head + "a_total x\n", head + head,
                     head + 'a_total{b="c} 1\n', head + 'a_total{b="\\t"} 1\n', head + "b_total 1\n", head + "a_total -1\n",
                     "# HELP a A\n# TYPE a counter\na 1\n", "# HELP a_total A\n# TYPE a_total gauge\na_total 1\n",
                     "# HELP a_ms A\n# TYPE a_ms gauge\na_ms 1\n", "# TYPE a gauge\na 1\n", "# HELP a \n# TYPE a gauge\na 1\n",
                     times + 't_bucket{le="1"} 3\nt_bucket{le="+Inf"} 2\nt_sum 3\nt_count 2\n',
                     times + 't_bucket{le="1"} 1\nt_sum 3\nt_count 1\n', times + 't_bucket{le="+Inf"} 1\nt_count 1\n',
                     times + 't_bucket{le="+Inf"} 1\nt_sum 3\nt_count 2\n'):
            with self.subTest(text=text):
                self.assertNotEqual(metrics_format.problems_of(text), [])

    def test_the_dashboard_shows_metrics_that_there_are(self):
        with Server("--max-batch-size", 2) as server:
            server.complete(prompt="One day", max_tokens=4)
            now = server.wait_for(lambda now: any(name.startswith("encore_steps_total") for name in now))
            known = {re.sub(r"\{.*", "", name) for name in now}
        dashboard = (SOURCE / "examples" / "operation" / "grafana.json").read_text()
        asked = set(re.findall(r"encore_\w+", " ".join(
            target["expr"] for panel in json.loads(dashboard)["panels"] for target in panel["targets"])))
        self.assertGreater(len(asked), 10)
        self.assertEqual(asked - known, set())

    def test_metrics_have_the_names_that_other_systems_give_them(self):
        with Server("--max-batch-size", 1, "--metric-aliases", "vllm,trtllm") as server:
            server.complete(max_tokens=3)
            metrics = server.metrics()
        for own, alias in (("encore_generated_tokens_total", "vllm:generation_tokens_total"),
                           ("encore_time_to_first_token_seconds_count", "trtllm_time_to_first_token_seconds_count")):
            self.assertEqual(metrics[own], metrics[alias])
            self.assertGreater(metrics[own], 0)
        # Every row of the tables names a metric that there is.
        self.assertEqual(len({re.sub(r"_(bucket|sum|count)?(\{.*)?$", "", name) for name in metrics
                              if name.startswith(("vllm:", "trtllm_"))}), 17)
        self.assertIn("--metric-aliases vlm: there are those of vllm and trtllm",
                      self.error_line("serve", "--metric-aliases", "vlm", code=2))


if __name__ == "__main__":
    harness.main()
