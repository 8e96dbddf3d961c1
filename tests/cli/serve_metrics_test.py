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
        operation = SOURCE / "examples" / "operation"
        asked = set(re.findall(r"encore_\w+", " ".join(
            target["expr"] for panel in json.loads((operation / "grafana.json").read_text())["panels"] for target in panel["targets"])))
        self.assertGreater(len(asked), 10)
        self.assertEqual(asked - known, set())
        rules = operation / "alerts.yml"
        asked = set(re.findall(r"encore_\w+", " ".join(re.findall(r"(?m)^        expr: (.*(?:\n {10}.*)*)", rules.read_text()))))
        self.assertGreaterEqual(len(asked), 5)
        self.assertEqual(asked - known, set())
        if promtool := shutil.which("promtool"):
            checked = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True, check=False)
            self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_every_answer_is_counted_by_its_route_and_code(self):
        def answers(route, code):
            return now[f'encore_http_requests_total{{route="{route}",code="{code}"}}']

        with Server("--max-batch-size", 1, "--max-queue", 0, "--api-key", "secret") as server:
            key = {"Authorization": "Bearer secret"}
            metrics = lambda: server.metrics(key)
            before = metrics()
            self.assertEqual(before['encore_http_requests_total{route="/v1/completions",code="429"}'], 0)
            ask = lambda path, body, headers=key: server.request("POST", path, body, headers)[0]
            endless = {"prompt": "One day", "max_tokens": 400, "ignore_eos": True, "stream": True}
            self.assertEqual(ask("/v1/completions", {"prompt": "One day"}, {}), 401)
            self.assertEqual(ask("/v1/completions", {"prompt": 7}), 400)
            self.assertEqual(ask("/v1/nothing", {}), 404)
            self.assertEqual(ask("/v1/completions", "x" * (17 << 20)), 413)
            with server.connection() as connection:
                connection.request("POST", "/v1/completions", json.dumps(endless), key)
                connection.getresponse().readline()
                refused = ask("/v1/completions", {"prompt": "One day"})
            now = metrics()
            self.assertEqual([answers("/v1/completions", code) for code in ("401", "400", "413")], [1, 1, 1])
            self.assertEqual(answers("other", "404"), 1)
            self.assertIn(refused, (200, 429))
            self.assertEqual(answers("/v1/completions", str(refused)), 2 if refused == 200 else 1)
            self.assertEqual(now['encore_refused_requests_total{reason="invalid_api_key"}'], 1)
            self.assertGreater(now["process_resident_memory_bytes"], 1e6)

    def test_the_binary_says_what_it_was_made_of(self):
        lines = self.run_encore("--version").stdout.splitlines()
        self.assertRegex(lines[0], r"^encore \d+\.\d+\.\d+$")
        self.assertRegex("\n".join(lines[1:]), r"^commit (\w+(\+changes)?)\nbuild \S.*\nCUDA (none|[\d.]+, architectures \S+)$")
        with Server() as server:
            version = server.request("GET", "/version")[2]
            info = next(name for name in server.metrics() if name.startswith("encore_build_info{"))
        self.assertEqual(f"commit {version['commit']}", lines[1])
        self.assertIn(f'commit="{version["commit"]}"', info)

    def test_metrics_have_the_names_that_other_systems_give_them(self):
        with Server("--max-batch-size", 1, "--max-loras", 1, "--metric-aliases", "vllm,trtllm") as server:
            server.complete(max_tokens=3)
            metrics = server.metrics()
        for own, alias in (("encore_generated_tokens_total", "vllm:generation_tokens_total"),
                           ("encore_time_to_first_token_seconds_count", "trtllm_time_to_first_token_seconds_count")):
            self.assertEqual(metrics[own], metrics[alias])
            self.assertGreater(metrics[own], 0)
        # Every row of the tables names a metric that there is.
        self.assertEqual(len({re.sub(r"_(bucket|sum|count)?(\{.*)?$", "", name) for name in metrics
                              if name.startswith(("vllm:", "trtllm_"))}), 18)
        self.assertIn("--metric-aliases vlm: there are those of vllm and trtllm",
                      self.error_line("serve", "--metric-aliases", "vlm", code=2))


if __name__ == "__main__":
    harness.main()
