"""tools/serve_load.py: streams through a server beside the same requests without one. tools/serve_stress.py: a little of each."""

import json
import subprocess
import sys

import harness
from harness import DEVICE, ENCORE, CliTest


class ServeLoadTest(CliTest):
    def test_it_reports_both_rates_and_their_ratio(self):
        command = [sys.executable, "-B", harness.SOURCE / "tools/serve_load.py", "--encore", ENCORE, "--device", DEVICE,
                   "--streams", 3, "--input-tokens", 8, "--output-tokens", 6, "--rounds", 1, "--json"]
        output = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE).stdout
        result = json.loads(output)
        self.assertAlmostEqual(result["ratio"], result["through_http"][0] / result["in_process"][0])
        self.assertGreater(result["first_event_p50_ms"], 0)

    def test_a_little_of_each_stress_loses_nothing(self):
        for arguments in (("streams", "--streams", 50, "--tokens", 30, "--token-ms", 100, "--ramp-s", 0.2),
                          ("overload", "--capacity", 8, "--tokens", 5, "--plateau-s", 1, "--duration-s", 2),
                          ("disconnects", "--disconnects", 50, "--width", 25), ("drain", "--streams", 10, "--rounds", 1),
                          ("restarts", "--rounds", 1)):
            with self.subTest(arguments[0]):
                result = self.stress(*arguments)
                # A machine that is busy while it measures what a server can do offers too little.
                for _ in range(10):
                    if arguments[0] != "overload" or result["refused_p99_ms"] > 0:
                        break
                    result = self.stress(*arguments)
                if arguments[0] == "overload":
                    self.assertGreater(result["refused_p99_ms"], 0)

    def stress(self, *arguments):
        command = [sys.executable, "-B", harness.SOURCE / "tools/serve_stress.py", *arguments, "--encore", ENCORE, "--device", DEVICE]
        process = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
        self.assertTrue(process.stdout, process.stderr)
        result = json.loads(process.stdout)
        for name in ("lost", "pages_lost", "other_statuses"):
            self.assertEqual(result.get(name, 0), 0, result)
        return result


if __name__ == "__main__":
    harness.main()
