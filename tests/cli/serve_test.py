"""serve: the OpenAI protocol over sockets, as clients use it."""

import hashlib
import json
import math
import re
import signal
import socket
import threading
import time

import harness
from harness import DEVICE, FEATURE_FLAGS, CliTest
from server_process import PATIENCE, PROMPT, Server


# On a CPU a token has the same logits in every step; on a GPU steps of other sizes round elsewhere. Ranks round their parts
# of every sum to the bundled model's bf16: in the log probability of an unlikely token, -15.8, that is 0.1.
NEAR = 0.3 if "--tensor-parallel" in FEATURE_FLAGS else 1e-4 if DEVICE == "cpu" else 5e-2


def text_of(events):
    return "".join(event["choices"][0]["text"] for event in events if event != "[DONE]" and event["choices"])


class ServeTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        template = cls.work / "template.jinja"
        template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        cls.server = Server("--max-batch-size", 8, "--served-model-name", "stories", "tales", "--chat-template", template)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        super().tearDownClass()

    def generated(self, prompt, max_tokens):
        result = self.run_encore("generate", "--device", DEVICE, "--prompt", prompt, "--max-tokens", max_tokens, "--json")
        return json.loads(result.stdout)

    def test_a_completion_is_what_generate_gives(self):
        wanted = self.generated(PROMPT, 60)
        body = self.server.complete(max_tokens=60)
        self.assertEqual(body["choices"][0]["text"], wanted["text"])
        self.assertEqual(body["choices"][0]["finish_reason"], "length")
        count = len(wanted["prompt_ids"])
        self.assertEqual(body["usage"], {"prompt_tokens": count, "completion_tokens": 60, "total_tokens": count + 60,
                                         "prompt_tokens_details": {"cached_tokens": 0}})
        self.assertEqual(body["object"], "text_completion")
        self.assertEqual(body["model"], "stories")
        by_ids = self.server.complete(prompt=wanted["prompt_ids"], max_tokens=60, model="tales")
        self.assertEqual(by_ids["choices"][0]["text"], wanted["text"])
        self.assertEqual(by_ids["model"], "tales")

    def test_a_stream_gives_the_same_text_piece_by_piece(self):
        wanted = self.server.complete(max_tokens=40)
        events = list(self.server.events(prompt=PROMPT, max_tokens=40, stream_options={"include_usage": True}))
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(events[-2]["choices"], [])
        self.assertEqual(events[-2]["usage"], wanted["usage"])
        self.assertTrue(all(event["usage"] is None for event in events[:-2]))
        self.assertGreater(len(events), 10)
        self.assertEqual(text_of(events), wanted["choices"][0]["text"])
        self.assertEqual([event["choices"][0]["finish_reason"] for event in events[:-2]], [None] * (len(events) - 3) + ["length"])
        self.assertEqual(len({event["id"] for event in events[:-1]}), 1)

    def test_streams_at_the_same_time_do_not_mix(self):
        prompts = ["One day", "The little dog", "A cat sat", "Lily was", "In the forest"]
        wanted = [self.server.complete(prompt=prompt, max_tokens=80)["choices"][0]["text"] for prompt in prompts]
        found = [None] * len(prompts)

        def stream(i):
            found[i] = text_of(self.server.events(prompt=prompts[i], max_tokens=80))

        threads = [threading.Thread(target=stream, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, wanted)

    def test_a_conversation_is_its_rendered_prompt(self):
        messages = [{"role": "system", "content": "Once upon"}, {"role": "user", "content": " a time"}]
        tokens = self.server.request("POST", "/tokenize", {"messages": messages})[2]["tokens"]
        wanted = self.server.complete(prompt=tokens, max_tokens=40)
        body = {"messages": messages, "temperature": 0, "max_completion_tokens": 40}
        status, _, found = self.server.request("POST", "/v1/chat/completions", body)
        self.assertEqual((status, found["object"]), (200, "chat.completion"))
        self.assertEqual(found["choices"][0]["message"]["content"], wanted["choices"][0]["text"])
        self.assertEqual(found["usage"], wanted["usage"])
        events = list(self.server.events("/v1/chat/completions", messages=messages, max_tokens=40))
        deltas = [event["choices"][0]["delta"] for event in events[:-1]]
        self.assertEqual(deltas[0], {"role": "assistant", "content": ""})
        self.assertEqual("".join(delta.get("content", "") for delta in deltas), wanted["choices"][0]["text"])
        text = self.server.request("POST", "/detokenize", {"tokens": tokens})[2]["prompt"]
        self.assertEqual(text, PROMPT)

    def test_prompts_that_begin_alike_are_computed_once(self):
        prompt = "The little dog ran into the big forest. " * 12
        first, second = (self.server.complete(prompt=prompt, max_tokens=8) for _ in range(2))
        self.assertEqual(first["choices"][0]["text"], second["choices"][0]["text"])
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, second["usage"]["prompt_tokens"] - 33)
        other = self.server.complete(prompt=prompt, max_tokens=8, cache_salt="mine")
        self.assertEqual(other["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertGreaterEqual(self.server.metrics()["encore_prefix_cache_hit_tokens_total"], cached)

    def test_several_prompts_and_choices(self):
        body = self.server.complete(prompt=["One day", "The cat"], n=2, echo=True, max_tokens=5)
        self.assertEqual([choice["index"] for choice in body["choices"]], [0, 1, 2, 3])
        texts = [choice["text"] for choice in body["choices"]]
        self.assertTrue(texts[0].startswith("One day") and texts[2].startswith("The cat"))
        self.assertEqual((texts[0], texts[2]), (texts[1], texts[3]))
        self.assertEqual(body["usage"]["completion_tokens"], 20)
        sampled = [self.server.complete(n=4, seed=seed, temperature=1, max_tokens=60)["choices"] for seed in (1, 1, 2)]
        texts = [[choice["text"] for choice in choices] for choices in sampled]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0][1:], texts[2][:3])  # the i-th choice has seed + i
        self.assertEqual(len(set(texts[0])), 4)

    def test_stop_strings_and_tokens(self):
        whole = self.server.complete(max_tokens=60)["choices"][0]["text"]
        stop = whole[30:37]
        body = self.server.complete(max_tokens=60, stop=["not in there", stop])
        self.assertEqual(body["choices"][0]["text"], whole[:whole.index(stop)])
        self.assertEqual((body["choices"][0]["finish_reason"], body["choices"][0]["stop_reason"]), ("stop", stop))
        self.assertLess(body["usage"]["completion_tokens"], 60)
        body = self.server.complete(max_tokens=60, stop=stop, include_stop_str_in_output=True)
        self.assertEqual(body["choices"][0]["text"], whole[:whole.index(stop) + len(stop)])
        self.assertEqual(text_of(self.server.events(prompt=PROMPT, max_tokens=60, stop=stop)), whole[:whole.index(stop)])
        ids = self.generated(PROMPT, 60)["ids"]
        body = self.server.complete(max_tokens=60, stop_token_ids=[ids[9]])
        self.assertEqual(body["choices"][0]["stop_reason"], ids[9])
        self.assertEqual(body["usage"]["completion_tokens"], ids.index(ids[9]) + 1)
        self.assertEqual(self.server.complete(max_tokens=60, stop_token_ids=[ids[9]], min_tokens=50)["usage"]["completion_tokens"] > 50, True)
        ids = self.generated(PROMPT, 60)["ids"]
        biased = self.server.complete(max_tokens=9, logit_bias={str(ids[3]): 100})
        self.assertEqual(biased["choices"][0]["text"], self.server.complete(max_tokens=9, logit_bias={str(ids[3]): 100.0})["choices"][0]["text"])
        repeated = self.server.complete(max_tokens=60)["choices"][0]["text"]
        self.assertNotEqual(self.server.complete(max_tokens=60, frequency_penalty=2)["choices"][0]["text"], repeated)
        self.server.wait_until_idle()

    def test_a_client_that_leaves_frees_its_pages(self):
        before = self.server.metrics().get('encore_requests_total{end="disconnected"}', 0)
        for stream in (True, False):
            with self.server.connection() as connection:
                body = {"prompt": PROMPT, "max_tokens": 1000, "ignore_eos": True, "n": 100, "stream": stream}
                connection.request("POST", "/v1/completions", json.dumps(body))
                self.server.wait_for(lambda now: now["encore_kv_pages_free"] < now["encore_kv_pages"])
                if stream:
                    connection.getresponse().readline()
                connection.sock.close()
        now = self.server.wait_until_idle()
        self.assertEqual(now['encore_requests_total{end="disconnected"}'], before + 2)
        self.assertGreaterEqual(now['encore_sequences_ended_total{reason="aborted"}'], 16)

    def test_log_probabilities_are_those_of_the_chosen_tokens(self):
        choice = self.server.complete(prompt="One day", max_tokens=6, logprobs=5)["choices"][0]
        logprobs = choice["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), choice["text"])
        for token, chosen, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
            self.assertEqual(max(top.values()), chosen)  # greedy
            self.assertEqual(top[token], chosen)
            self.assertLessEqual(sum(math.exp(value) for value in top.values()), 1.0001)

    def reference(self, ids):
        """Log softmax in float64 of the logits behind each token, by `encore logits`."""
        path = self.work / "logits.npy"
        self.run_encore("logits", "--device", DEVICE, "--ids", ",".join(map(str, ids)), "--out", path)
        rows = []
        for row in harness.read_npy(path)[0]:
            largest = max(row)
            log_sum = math.log(math.fsum(math.exp(value - largest) for value in row))
            rows.append([value - largest - log_sum for value in row])
        return rows

    def test_log_probabilities_of_a_prompt_and_of_an_answer_are_those_of_the_logits(self):
        answered = self.server.complete(prompt=PROMPT, max_tokens=12, logprobs=3)["choices"][0]
        text = PROMPT + answered["text"]
        scored = self.server.complete(prompt=text, max_tokens=0, echo=True, logprobs=1, prompt_logprobs=2)
        choice = scored["choices"][0]
        self.assertEqual(choice["text"], text)
        self.assertEqual(scored["usage"]["completion_tokens"], 0)
        ids = self.generated(text, 1)["prompt_ids"]
        wanted = self.reference(ids)
        chosen = choice["logprobs"]["token_logprobs"]
        self.assertEqual((len(chosen), chosen[0], choice["prompt_logprobs"][0]), (len(ids), None, None))
        for row, token, got, entry in zip(wanted, ids[1:], chosen[1:], choice["prompt_logprobs"][1:]):
            self.assertAlmostEqual(got, row[token], delta=NEAR)
            self.assertEqual(entry[str(token)]["logprob"], got)
            for name, likely in entry.items():
                self.assertAlmostEqual(likely["logprob"], row[int(name)], delta=NEAR)
        # The answer's tokens, when they were chosen and now that they are given.
        for given, got in zip(chosen[-12:], answered["logprobs"]["token_logprobs"]):
            self.assertAlmostEqual(given, got, delta=NEAR)
        offsets = choice["logprobs"]["text_offset"] + [len(text)]
        for token, first, last in zip(choice["logprobs"]["tokens"][2:], offsets[2:], offsets[3:]):
            self.assertEqual(token, text[first:last])

    def test_bad_requests_are_refused_by_name(self):
        cases = [({"max_tokens": -1}, "max_tokens", "out_of_range"), ({"max_tokens": "9"}, "max_tokens", "invalid_type"),
                 ({"prompt": None}, "prompt", "missing_parameter"), ({"prompt": {}}, "prompt", "invalid_type"),
                 ({"prompt": [1, 5000]}, "prompt", "out_of_range"), ({"prompt": []}, "prompt", None),
                 ({"n": 5_000_000}, "n", "out_of_range"), ({"temperature": -1}, "temperature", "out_of_range"),
                 ({"top_p": -0.1}, "top_p", "out_of_range"), ({"stop": [""]}, "stop", "out_of_range"),
                 ({"logprobs": 21}, "logprobs", "out_of_range"), ({"best_of": 2}, "best_of", "unsupported_parameter"),
                 ({"bad_words": ["a"]}, "bad_words", "unsupported_parameter"),
                 ({"max_tokens": 5000}, "max_tokens", "context_length_exceeded"),
                 ({"prompt": "word " * 3000}, "prompt", "context_length_exceeded"),
                 ({"temprature": 1}, "temprature", "unknown_parameter"),
                 ({"stream_options": {"include_usage": True}}, "stream_options", None)]
        for parameters, param, code in cases:
            with self.subTest(parameters=str(parameters)[:80]):
                status, _, body = self.server.request("POST", "/v1/completions", {"prompt": PROMPT} | parameters)
                self.assertEqual((status, body["error"]["param"]), (400, param))
                if code:
                    self.assertEqual(body["error"]["code"], code)
                self.assertNotIn("\n", body["error"]["message"])
        # What changes nothing is taken.
        self.server.complete(best_of=1, frequency_penalty=0, presence_penalty=0.0, logprobs=None, user="me", suffix="")

    def test_routes(self):
        get = lambda path, **options: self.server.request("GET", path, **options)
        self.assertEqual([model["id"] for model in get("/v1/models")[2]["data"]], ["stories", "tales"])
        self.assertEqual(get("/v1/models/tales")[2]["id"], "tales")
        self.assertEqual(get("/v1/models/none")[0], 404)
        self.assertEqual(self.server.request("POST", "/v1/completions", {"prompt": "x", "model": "none"})[0], 404)
        self.assertEqual(get("/nothing")[0], 404)
        status, headers, _ = get("/v1/completions")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        self.assertEqual(get("/version")[0], 200)
        self.assertEqual(get("/live")[0], 200)
        self.assertEqual(get("/health")[0], 200)
        self.assertEqual(get("/health_generate")[0], 200)
        self.assertIn("/v1/chat/completions", get("/openapi.json")[2]["paths"])

    def test_pages_of_others_and_their_names_are_turned_away(self):
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
            with self.subTest(headers=headers):
                status, answer, _ = self.server.request("POST", "/v1/completions", {"prompt": "x"}, headers)
                self.assertEqual(status, 403)
                self.assertNotIn("Access-Control-Allow-Origin", answer)
        own = {"Origin": f"http://{self.server.host}:{self.server.port}"}
        self.assertEqual(self.server.request("GET", "/v1/models", headers=own)[0], 200)

    def test_a_connection_serves_several_requests(self):
        with self.server.connection() as connection:
            for _ in range(3):
                connection.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT, "max_tokens": 2}))
                self.assertEqual(connection.getresponse().read()[:1], b"{")
                connection.request("POST", "/v1/completions", json.dumps({"prompt": PROMPT, "max_tokens": 2, "stream": True}))
                self.assertTrue(connection.getresponse().read().endswith(b"data: [DONE]\n\n"))


class StartAndEndTest(CliTest):
    def test_sigterm_finishes_what_is_in_hand_and_refuses_the_rest(self):
        with Server("--max-batch-size", 4, "--drain-timeout", PATIENCE) as server:
            events = server.events(prompt=PROMPT, max_tokens=200, ignore_eos=True, n=4)
            next(events)
            server.process.send_signal(signal.SIGTERM)
            rest = list(events)
            self.assertEqual(rest[-1], "[DONE]")
            self.assertEqual(sum(event != "[DONE]" and event["choices"][0]["finish_reason"] == "length" for event in rest), 4)
            self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_what_outlasts_the_drain_is_cut_off_with_an_error(self):
        with Server("--max-batch-size", 64, "--drain-timeout", 0) as server:
            events = server.events(prompt=[PROMPT] * 64, max_tokens=1000, ignore_eos=True, n=16)
            next(events)
            server.process.send_signal(signal.SIGTERM)
            rest = list(events)
            self.assertEqual(rest[-2]["error"]["code"], "stopped")
            self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_a_burst_is_cut_off_where_it_is(self):
        for _ in range(5):
            with Server("--max-batch-size", 16, "--burst-steps", 16, "--drain-timeout", 0) as server:
                events = server.events(prompt=PROMPT, max_tokens=1000, ignore_eos=True, n=16)
                next(events)
                server.process.send_signal(signal.SIGTERM)
                rest = list(events)
                self.assertEqual(server.process.wait(PATIENCE), 0)
            if "error" in rest[-2]:
                break
            # This process waited so long for a processor that the texts were complete before it sent the signal.
        self.assertEqual(rest[-2]["error"]["code"], "stopped")

    def test_an_idle_server_ends_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Server("--max-batch-size", 1, "--drain-timeout", PATIENCE) as server:
                server.complete(max_tokens=1)
                start = time.monotonic()
                self.assertEqual(server.end(number), 0)
                self.assertLess(time.monotonic() - start, PATIENCE / 10)

    def test_a_full_queue_says_when_to_come_again(self):
        # Both take every place, so that the first would have to end whole for the second to be taken.
        with Server("--max-batch-size", 1, "--max-queue", 99) as server:
            events = server.events(prompt=PROMPT, max_tokens=1000, ignore_eos=True, n=100)
            next(events)
            status, headers, body = server.request("POST", "/v1/completions", {"prompt": PROMPT, "n": 100})
            self.assertEqual((status, body["error"]["code"]), (429, "queue_full"))
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)
            events.close()
            server.wait_until_idle()
            server.complete(max_tokens=1)

    def test_keys(self):
        file = self.work / "keys"
        file.write_text(f"first\n\nsecond \nsha256:{hashlib.sha256(b'third').hexdigest()}\n")
        with Server("--max-batch-size", 1, "--api-key-file", file, "--allowed-origins", "https://chat.example") as server:
            for value, wanted in ((None, 401), ("Bearer wrong", 401), ("first", 401), ("Bearer first", 200), ("bearer second", 200),
                                  ("Bearer third", 200), ("Bearer " + file.read_text().split()[2], 401)):
                headers = {"Authorization": value} if value else {}
                with self.subTest(value=value):
                    self.assertEqual(server.request("GET", "/v1/models", headers=headers)[0], wanted)
            self.assertEqual(server.request("GET", "/health")[0], 200)
            status, headers, _ = server.request("OPTIONS", "/v1/completions", headers={"Origin": "https://chat.example"})
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (204, "https://chat.example"))

    def test_a_file_configures_the_server(self):
        path = self.work / "server.yml"
        path.write_text("port: 1\nserved_model_name: [tales, stories]\napi_key: 'a,b'\nmax_batch_size: 2\n")
        with Server("--config", path) as server:  # its flag --port wins
            headers = {"Authorization": "Bearer a,b"}
            self.assertEqual(server.request("GET", "/v1/models", headers={"Authorization": "Bearer a"})[0], 401)
            status, _, body = server.request("GET", "/v1/models", headers=headers)
            self.assertEqual((status, [row["id"] for row in body["data"]]), (200, ["tales", "stories"]))
            self.assertEqual(server.end(), 0)

    def test_the_log_names_requests_by_their_ids(self):
        with Server("--max-batch-size", 1, "--verbose") as server:
            given = {"X-Request-Id": 'mine "1"'}
            _, headers, _ = server.request("GET", "/live", headers=given)
            self.assertEqual(headers["X-Request-Id"], given["X-Request-Id"])
            server.request("POST", "/v1/nowhere")
            server.end()
        self.assertIn(r'request "mine \"1\"": "GET" "/live"', "".join(server.log))
        self.assertRegex("".join(server.log), r'request "req-[0-9a-f]{32}": "POST" "/v1/nowhere"')

    def test_an_idle_connection_is_closed_after_its_timeout(self):
        with Server("--keep-alive-timeout", 1) as server:
            with socket.create_connection((server.host, server.port), timeout=PATIENCE) as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                received = b""
                while chunk := connection.recv(4096):  # up to the end of the connection
                    received += chunk
                self.assertTrue(received.startswith(b"HTTP/1.1 200"), received)
            self.assertEqual(server.end(), 0)

    def test_a_script_answers_in_place_of_a_model(self):
        script = self.work / "script.json"
        script.write_text(json.dumps({"token_ms": 1, "answers": [{"when": "weather", "text": "It rains."}, {"text": "Who knows?"}]}))
        with Server("--model", f"scripted:{script}") as server:
            self.assertEqual(server.line.split()[1], "scripted")
            for content, wanted in (("How is the weather?", "It rains."), ("How are you?", "Who knows?")):
                messages = [{"role": "user", "content": content}]
                events = list(server.events("/v1/chat/completions", messages=messages))
                self.assertEqual("".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1]), wanted)
                self.assertEqual(events[-2]["choices"][0]["finish_reason"], "stop")
            self.assertEqual(server.end(), 0)
        self.assertIn("no.json", self.error_line("serve", "--port", 0, "--model", "scripted:no.json", code=2))

    def test_a_port_that_is_taken_is_one_line(self):
        with Server("--max-batch-size", 1) as server:
            line = self.error_line("serve", "--device", DEVICE, "--max-batch-size", 1, "--port", server.port, code=2)
            self.assertIn("--port", line)


if __name__ == "__main__":
    harness.main()
