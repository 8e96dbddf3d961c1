"""serve: a server whose ranks are threads ends with one error when one of them stops, and starts again."""

import json
import os
import threading

import harness
from harness import CliTest, cpu_only
from server_process import PATIENCE, Server
from thread_stop import stop_thread, thread_named, wait_until_asleep

ARGUMENTS = ("--tensor-parallel", "2", "--rank-timeout", "5", "--max-seq-len", "256")
DEVICE_FAILED = 7  # the exit code
# A thread that has stopped keeps what it owns until its process ends, which AddressSanitizer would call a leak.
os.environ["ASAN_OPTIONS"] = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "detect_leaks=0"]))


@cpu_only("ranks are threads of the CPU")
class RankTest(CliTest):
    def test_a_rank_that_stops_ends_every_request_and_the_process_and_the_same_command_starts_again(self):
        with Server(*ARGUMENTS) as server:
            expected = server.complete(max_tokens=8)["choices"][0]["text"]
            server.wait_until_idle()
            rank = thread_named(server.process.pid, "rank 1")
            wait_until_asleep(server.process.pid, rank, PATIENCE)
            try:
                stop_thread(rank)
            except PermissionError as error:
                self.skipTest(f"no process may stop threads of another here: {error}")
            answers = []
            def ask(stream):
                with server.connection() as connection:
                    body = {"prompt": "Once", "max_tokens": 20, "ignore_eos": True, "stream": stream}
                    connection.request("POST", "/v1/completions", json.dumps(body))
                    answers.append(connection.getresponse().read().decode())
            asking = [threading.Thread(target=ask, args=(i % 2 == 1,)) for i in range(4)]
            for one in asking:
                one.start()
            for one in asking:
                one.join(PATIENCE)
            self.assertEqual(server.process.wait(PATIENCE), DEVICE_FAILED)
            server.reader.join()
            self.assertEqual(len(answers), 4)
            for answer in answers:
                self.assertIn("error", answer)
            errors = [line for line in server.log if "rank 1 of 2 failed" in line]
            self.assertTrue(errors, server.log)
            self.assertRegex(errors[-1], r"done nothing for 5 s, and the others wait for it at op '\w+' of model\..* \(.*\)")
        with Server(*ARGUMENTS) as server:
            self.assertEqual(server.complete(max_tokens=8)["choices"][0]["text"], expected)
            self.assertEqual(server.end(), 0)


if __name__ == "__main__":
    harness.main()
