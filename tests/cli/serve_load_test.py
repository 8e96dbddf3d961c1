"""tools/serve_load.py: streams through a server beside the same requests without one."""

import json
import subprocess
import sys

import harness
from harness import ENCORE, CliTest


class ServeLoadTest(CliTest):
    def test_it_reports_both_rates_and_their_ratio(self):
        command = [sys.executable, "-B", harness.SOURCE / "tools/serve_load.py", "--encore", ENCORE, "--streams", 3,
                   "--input-tokens", 8, "--output-tokens", 6, "--rounds", 1, "--json"]
        output = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE).stdout
        result = json.loads(output)
        self.assertAlmostEqual(result["ratio"], result["through_http"][0] / result["in_process"][0])
        self.assertGreater(result["first_event_p50_ms"], 0)


if __name__ == "__main__":
    harness.main()
