"""serve: what an operator does with a server while it runs."""

import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time

import harness
from harness import DEVICE, ENCORE, CliTest
from server_process import PATIENCE, PROMPT, Server, free_port


def text_of(events):
    return "".join(event["choices"][0]["text"] for event in events if event != "[DONE]")


class LoadingTest(CliTest):
    """A load that waits for a file, which the test writes when it likes."""

    def setUp(self):
        self.script = self.work / "script.json"
        self.script.unlink(missing_ok=True)
        os.mkfifo(self.script)
        self.port = free_port()
        command = [ENCORE, "serve", "--device", DEVICE, "--port", str(self.port), "--model", f"scripted:{self.script}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        self.wait_for_the_port()

    def tearDown(self):
        self.connection.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def wait_for_the_port(self):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.connection.connect()
            except ConnectionRefusedError:
                self.assertIsNone(self.process.poll())
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)

    def ask(self, method, path, body=None):
        """On the one connection, which a closed one would not survive."""
        connected = self.connection.sock
        self.connection.request(method, path, body)
        response = self.connection.getresponse()
        answer = response.status, response.headers, json.loads(response.read())
        self.assertIs(self.connection.sock, connected)
        return answer

    def expect_loading(self):
        self.assertEqual(self.ask("GET", "/live")[0], 200)
        for method, path in (("GET", "/health"), ("GET", "/v1/models"), ("POST", "/v1/completions")):
            status, headers, body = self.ask(method, path, "{}" if method == "POST" else None)
            self.assertEqual((status, body["error"]["code"]), (503, "loading"))
            self.assertIn("reading the configuration", body["error"]["message"])
            self.assertGreater(int(headers["Retry-After"]), 0)

    def test_a_connection_lives_on_from_503_to_answers(self):
        self.expect_loading()
        self.script.write_text('{"answers": [{"text": "Yes."}]}')
        self.assertEqual(self.process.stdout.readline(), f"serving scripted at http://127.0.0.1:{self.port}\n")
        self.assertEqual(self.ask("GET", "/health")[0], 200)
        status, _, body = self.ask("POST", "/v1/completions", json.dumps({"prompt": PROMPT}))
        self.assertEqual((status, body["choices"][0]["text"]), (200, "Yes."))
        self.process.terminate()
        self.assertEqual(self.process.wait(PATIENCE), 0)

    def test_a_load_that_fails_ends_the_process_whoever_is_connected(self):
        self.expect_loading()
        self.script.write_text('{"answers": 5}')
        out, log = self.process.communicate(timeout=PATIENCE)
        self.assertEqual((self.process.returncode, out), (2, ""))
        lines = log.splitlines()
        self.assertTrue(lines.pop().startswith("encore: error (usage): "), log)
        self.assertEqual(len(lines), 3, log)
        for line, path in zip(lines, ("/health", "/v1/models", "/v1/completions")):
            self.assertIn(f' path="{path}" status=503 ', line)

    def test_signals_end_a_load_at_once(self):
        self.expect_loading()
        self.process.terminate()
        self.assertEqual(self.process.wait(PATIENCE), -signal.SIGTERM)

    def test_new_keys_may_come_while_it_loads(self):
        self.expect_loading()
        self.process.send_signal(signal.SIGHUP)
        for what in ("status=503", "status=503", "status=503", "read the keys"):
            self.assertIn(what, self.process.stderr.readline())
        self.expect_loading()


class ExpertCountsTest(CliTest):
    """--expert-counts: what routers chose for all that was served."""

    CONFIG = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 32, "intermediate_size": 64,
              "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64,
              "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
              "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 16, "norm_topk_prob": True,
              "decoder_sparse_step": 1, "mlp_only_layers": [], "torch_dtype": "float32"}

    def test_each_row_that_was_served_counts_for_its_experts(self):
        config = self.work / "experts" / "config.json"
        config.parent.mkdir()
        config.write_text(json.dumps(self.CONFIG))
        counts = self.work / "counts.json"
        # Each prompt is another, so all of its tokens are computed; the last token of an answer is read by no step.
        lengths = [(7, 5), (3, 9), (11, 1)]
        with Server("--model", f"synthetic:{config}", "--expert-counts", str(counts)) as server:
            for first, (prompt, answer) in enumerate(lengths):
                server.complete(prompt=[first + 1 + i for i in range(prompt)], max_tokens=answer, ignore_eos=True)
            self.assertEqual(server.end(), 0)
        layers = json.loads(counts.read_text())["layers"]
        # The last layer has the rows alone that logits are wanted of.
        for layer, tokens in zip(layers, (sum(prompt + answer - 1 for prompt, answer in lengths),
                                          sum(answer for _, answer in lengths)), strict=True):
            self.assertEqual(sum(layer["rows"]), 3 * tokens)
            self.assertGreater(layer["steps"], 0)
            self.assertTrue(all(0 <= steps <= min(rows, layer["steps"]) for rows, steps in zip(layer["rows"], layer["in_steps"])))

    def test_a_model_without_experts_is_refused(self):
        line = self.error_line("serve", "--device", DEVICE, "--port", "0", "--model", self.model, "--expert-counts", "x.json",
                               code=2)
        self.assertIn("no experts", line)


class LogTest(CliTest):
    def serve(self, *arguments):
        script = self.work / "script.json"
        script.write_text('{"answers": [{"text": "Yes, it is."}]}')
        return Server("--model", f"scripted:{script}", *arguments)

    def requests(self, server):
        """The log's lines of requests, once the server has ended."""
        server.end()
        server.reader.join()
        return [line for line in server.log if "request" in line and "finishing the requests" not in line]

    def test_every_request_that_ended_has_a_line(self):
        with self.serve("--log-format", "json") as server:
            server.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Is it?"}]},
                           {"X-Request-Id": "mine"})
            list(server.events(prompt=PROMPT, max_tokens=2))
            server.complete(prompt=[PROMPT] * 2, max_tokens=3, n=2)
            server.request("POST", '/no"where', "{}")
            server.request("POST", "/v1/completions", "no json")
            for path in ("/health", "/metrics", "/", "/live"):
                server.request("GET", path)
            server.request("PUT", "/health")
            lines = [json.loads(line) for line in self.requests(server)]
        for line in map(json.loads, server.log):
            self.assertLessEqual({"time", "level", "message"}, line.keys())
        self.assertEqual([line["status"] for line in lines], [200, 200, 200, 404, 400, 405])
        self.assertEqual([line.get("finish") for line in lines], ["stop", "length", "length", None, None, None])
        self.assertEqual([line["path"] for line in lines][:2], ["/v1/chat/completions", "/v1/completions"])
        self.assertEqual(lines[0]["id"], "mine")
        self.assertEqual([line.get("completion_tokens") for line in lines][1:4], [2, 12, None])
        for line in lines:
            self.assertRegex(line["client"], r"^127\.0\.0\.1:\d+$")
            self.assertGreater(line["total_s"], 0)
        for line in lines[:3]:
            self.assertGreater(line["prompt_tokens"], 0)
            self.assertLessEqual(line["first_token_s"], line["total_s"])

    def test_what_is_no_request_has_a_line_too(self):
        with self.serve() as server:
            with socket.create_connection((server.host, server.port), PATIENCE) as client:
                client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\nno header\r\n\r\n")
                self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 400 "))
            with socket.create_connection((server.host, server.port), PATIENCE) as client:
                client.sendall(b"\x16\x03\x01 hello\r\n\r\n")
                self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 400 "))
            lines = self.requests(server)
        self.assertEqual(len(lines), 2, lines)
        self.assertRegex(lines[0], r'^encore: request id="mine" client="127.0.0.1:[0-9]+" method="GET" '
                                   r'path="/v1/models" status=400 total_s=')
        self.assertIn(" status=400 ", lines[1])

    def test_a_model_says_how_long_a_request_waited_and_what_the_cache_had(self):
        with Server("--max-seq-len", 128, "--max-batch-size", 1) as server:
            for _ in range(2):
                server.complete(prompt=list(range(5, 85)), max_tokens=3)
            first, second = self.requests(server)
        self.assertIn(' finish="length" prompt_tokens=80 cached_tokens=0 completion_tokens=3 queue_s=', first)
        self.assertIn(' finish="length" prompt_tokens=80 cached_tokens=64 completion_tokens=3 queue_s=', second)
        self.assertRegex(first, r'^encore: request id="req-[0-9a-f]{32}" client="127\.0\.0\.1:\d+" method="POST"')

    def test_nothing_is_said_of_requests_where_that_is_off(self):
        with self.serve("--log-requests", "off") as server:
            server.complete(max_tokens=2)
            self.assertEqual(self.requests(server), [])

    def test_errors_that_end_the_process_have_the_format_too(self):
        result = self.run_encore("serve", "--log-format", "json", "--model", "scripted:/nowhere", "--port", "0", code=2)
        line = json.loads(result.stderr)
        self.assertEqual((line["level"], line["kind"]), ("error", "usage"))


class SleepTest(CliTest):
    def setUp(self):
        self.keys = self.work / "admin-keys"
        self.keys.write_text("operator\n")

    def operate(self, server, method, path, key="operator"):
        return server.request(method, path, headers={"Authorization": f"Bearer {key}"})

    def stream_put_to_sleep(self, server, wanted, query=""):
        """The stream of a request, and its events so far, where the sleep found it running: on a busy machine one may
        end before the sleep comes."""
        for _ in range(100):
            stream = server.events(**wanted)
            events = [next(stream)]
            self.assertEqual(self.operate(server, "POST", "/sleep" + query)[::2], (200, {"is_sleeping": True}))
            now = server.metrics()
            self.assertEqual(now["encore_asleep"], 1)
            if now["encore_sequences_running"] == 1:
                return stream, events
            self.assertEqual(self.operate(server, "POST", "/wake_up")[0], 200)
            list(stream)
        self.fail("no sleep found a stream running")

    def test_a_stream_goes_on_after_the_model_slept_as_if_it_had_not(self):
        wanted = {"prompt": PROMPT, "max_tokens": 450, "ignore_eos": True}
        with Server("--max-seq-len", 512, "--max-batch-size", 4, "--admin-key-file", self.keys) as server:
            undisturbed = text_of(server.events(**wanted))
            for query in ("", "?level=2", "?tags=kv_cache"):
                with self.subTest(query=query):
                    stream, events = self.stream_put_to_sleep(server, wanted, query)
                    status, headers, body = server.request("POST", "/v1/completions", {"prompt": PROMPT})
                    self.assertEqual((status, body["error"]["code"]), (503, "asleep"))
                    self.assertGreater(int(headers["Retry-After"]), 0)
                    self.assertEqual(server.request("GET", "/health")[0], 503)
                    self.assertEqual(server.request("GET", "/live")[0], 200)
                    self.assertEqual(self.operate(server, "GET", "/is_sleeping")[2], {"is_sleeping": True})
                    self.assertEqual(self.operate(server, "POST", "/wake_up")[::2], (200, {"is_sleeping": False}))
                    self.assertEqual(text_of(events + list(stream)), undisturbed)
            self.assertEqual(server.request("GET", "/health")[0], 200)
            server.wait_until_idle()

    def test_a_server_that_is_ended_in_its_sleep_ends_its_streams_with_an_error(self):
        with Server("--max-seq-len", 512, "--max-batch-size", 1, "--admin-key-file", self.keys) as server:
            stream, events = self.stream_put_to_sleep(server, {"prompt": PROMPT, "max_tokens": 450, "ignore_eos": True})
            self.assertEqual(server.end(), 0)
            events += stream
            self.assertEqual(events[-2]["error"]["code"], "stopped")

    def test_without_an_admin_key_nobody_may(self):
        with Server("--max-batch-size", 1) as server:
            status, _, body = self.operate(server, "POST", "/sleep")
            self.assertEqual(status, 403)
            self.assertIn("--admin-key-file", body["error"]["message"])
        self.keys.write_text("\n")
        self.assertIn("--admin-key-file", self.error_line("serve", "--admin-key-file", self.keys, "--port", "0", code=2))

    def test_a_scripted_model_says_that_it_cannot(self):
        script = self.work / "script.json"
        script.write_text('{"answers": [{"text": "Yes."}]}')
        with Server("--model", f"scripted:{script}", "--admin-key-file", self.keys) as server:
            status, _, body = self.operate(server, "POST", "/sleep")
            self.assertEqual(status, 400)
            self.assertIn("scripted", body["error"]["message"])
            self.assertEqual(self.operate(server, "GET", "/is_sleeping")[2], {"is_sleeping": False})


def bytes_of(text):
    number, unit = text.split()
    return float(number) * {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def available_bytes():
    return int(re.search(r"MemAvailable: *(\d+) kB", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024


@harness.cpu_only("a GPU's memory is for the model alone")
class HostMemoryTest(CliTest):
    """Sequences may be so long that KV takes whatever it is given."""

    KV = re.compile(r"KV ([\d.]+ [kMG]B) for (\d+) tokens")

    def start_line(self, server):
        server.wait_for_line("ready in")
        return next(line for line in server.log if self.KV.search(line))

    def test_kv_takes_a_quarter_of_what_is_free_and_says_so(self):
        free = available_bytes()
        with Server("--model", self.model) as server:
            line = self.start_line(server)
        free = max(free, available_bytes())  # others may have ended meanwhile
        self.assertIn("a quarter of the memory that is free", line)
        self.assertLess(bytes_of(self.KV.search(line)[1]), 0.3 * free)

    def test_more_is_taken_where_an_option_says_so(self):
        with Server("--model", self.model, "--free-gpu-memory-fraction", "0.001") as server:
            self.assertIn("the share of --free-gpu-memory-fraction", self.start_line(server))
        with Server("--model", self.model, "--kv-tokens", 4096) as server:
            self.assertEqual(self.KV.search(self.start_line(server))[2], "4096")

    def test_what_many_prompts_leave_stays_within_the_plan(self):
        def resident():
            return int(re.search(r"VmRSS:\s*(\d+) kB", pathlib.Path(f"/proc/{server.process.pid}/status").read_text())[1]) * 1024

        draw = random.Random(7)
        with Server("--model", self.model, "--kv-tokens", 2048) as server:
            plan = bytes_of(self.KV.search(self.start_line(server))[1])
            self.assertLess(plan, 10e6)
            for number in range(100):
                server.complete(prompt=[draw.randrange(3, 320) for _ in range(600)], max_tokens=1)
                if number == 4:
                    before = resident()
            # All of it would be 100 * 600 tokens, which take 120 MB.
            self.assertLess(resident() - before, plan + 60e6)
            self.assertGreater(server.metrics()["encore_prefix_cache_evicted_pages_total"], 0)


class DeadlineTest(CliTest):
    def test_a_request_ends_when_its_time_passes_running_or_in_the_queue(self):
        with Server("--max-seq-len", 512, "--max-batch-size", 1) as server:
            first = server.events(prompt=PROMPT, max_tokens=490, ignore_eos=True)
            next(first)
            body = {"prompt": PROMPT, "max_tokens": 490, "ignore_eos": True}
            status, _, answer = server.request("POST", "/v1/completions", body | {"timeout": 0.01})
            self.assertEqual((status, answer["error"]["code"]), (504, "request_timeout"))
            self.assertEqual(list(first)[-1], "[DONE]")
            *_, last, done = server.events(**body, n=20, timeout=1)
            self.assertEqual((last["error"]["code"], done), ("request_timeout", "[DONE]"))
            now = server.wait_until_idle()
            self.assertEqual(now['encore_requests_total{end="timed_out"}'], 2)

    def test_the_server_may_limit_all_requests(self):
        script = self.work / "slow.json"
        script.write_text('{"token_ms": 60000, "answers": [{"text": "a long answer"}]}')
        with Server("--model", f"scripted:{script}", "--request-timeout", 2) as server:
            for timeout in ({}, {"timeout": 100}):
                *events, last, _ = server.events(prompt=PROMPT, max_tokens=50, **timeout)
                self.assertEqual(last["error"]["code"], "request_timeout")
                self.assertTrue(text_of(events).startswith("a"))


if __name__ == "__main__":
    harness.main()
