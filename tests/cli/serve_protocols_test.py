"""serve: each protocol over sockets, with tools and reasoning, answered from a script."""

import json

import harness
from harness import CliTest
from server_process import Server

TEMPLATES = harness.SOURCE / "src/text/testdata/chat_templates"
ANSWER = ("<think>\nI must look.\n</think>\n\nOne moment, \u00fcber \U0001f600.\n<tool_call>\n"
          '{"name": "get_weather", "arguments": {"city": "Z\u00fcrich", "days": [1, 2]}}\n</tool_call>\n<tool_call>\n'
          '{"name": "now", "arguments": {}}\n</tool_call>')
TEXT = "One moment, \u00fcber \U0001f600."
ARGUMENTS = '{"city": "Z\u00fcrich", "days": [1, 2]}'
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
QUESTION = [{"role": "user", "content": "How is the weather?"}]


def functions(wrap, schema):
    """The two tools. `wrap`: what the protocol puts around a function; `schema`: its name for the parameters."""
    tools = [{"name": "get_weather", "description": "Says it", schema: SCHEMA}, {"name": "now", schema: SCHEMA}]
    return [wrap(tool) for tool in tools]


class ProtocolsTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        script = cls.work / "script.json"
        script.write_text(json.dumps({"answers": [{"when": "weather", "text": ANSWER}, {"text": "It is noon."}]}))
        cls.server = Server("--model", f"scripted:{script}", "--chat-template", TEMPLATES / "qwen3.jinja")

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        super().tearDownClass()

    def post(self, path, body):
        status, _, answer = self.server.request("POST", path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def test_chat(self):
        tools = functions(lambda tool: {"type": "function", "function": tool}, "parameters")
        body = {"messages": QUESTION, "tools": tools}
        choice = self.post("/v1/chat/completions", body)["choices"][0]
        message = choice["message"]
        self.assertEqual((choice["finish_reason"], message["content"], message["reasoning_content"]),
                         ("tool_calls", TEXT, "I must look."))
        calls = [call["function"] for call in message["tool_calls"]]
        self.assertEqual(calls, [{"name": "get_weather", "arguments": ARGUMENTS}, {"name": "now", "arguments": "{}"}])
        joined = {"content": "", "reasoning_content": ""}
        streamed = []
        for event in list(self.server.events("/v1/chat/completions", **body))[:-1]:
            delta = event["choices"][0]["delta"]
            for key in joined:
                joined[key] += delta.get(key, "")
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    streamed.append({"name": call["function"]["name"], "arguments": ""})
                streamed[call["index"]]["arguments"] += call["function"]["arguments"]
        self.assertEqual((joined["content"], joined["reasoning_content"], streamed), (TEXT, "I must look.", calls))
        after = [{"role": "user", "content": "The time?"},
                 message | {"tool_calls": message["tool_calls"][1:], "content": None},
                 {"role": "tool", "tool_call_id": message["tool_calls"][1]["id"], "content": "12:00"}]
        answer = self.post("/v1/chat/completions", {"messages": after, "tools": tools[1:]})
        self.assertEqual(answer["choices"][0]["message"]["content"], "It is noon.")

    def test_responses(self):
        body = {"input": "How is the weather?", "tools": functions(lambda tool: {"type": "function"} | tool, "parameters")}
        whole = self.post("/v1/responses", body)
        self.assertEqual([item["type"] for item in whole["output"]], ["reasoning", "message", "function_call", "function_call"])
        self.assertEqual(whole["output"][1]["content"][0]["text"], TEXT)
        self.assertEqual(whole["output"][2]["arguments"], ARGUMENTS)
        events = list(self.server.typed_events("/v1/responses", **body))
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        texts = {}
        for event in events:
            if event["type"].endswith(".delta"):
                texts[event["output_index"]] = texts.get(event["output_index"], "") + event["delta"]
        self.assertEqual(texts, {0: "I must look.", 1: TEXT, 2: ARGUMENTS, 3: "{}"})
        self.assertEqual(events[-1]["type"], "response.completed")
        self.assertEqual(events[-1]["response"]["usage"], whole["usage"])
        output = {"type": "function_call_output", "call_id": whole["output"][3]["call_id"], "output": "12:00"}
        items = [{"role": "user", "content": "The time?"}, whole["output"][3], output]
        answer = self.post("/v1/responses", {"input": items})
        self.assertEqual(answer["output"][0]["content"][0]["text"], "It is noon.")

    def test_messages(self):
        body = {"messages": QUESTION, "max_tokens": 500, "tools": functions(dict, "input_schema")}
        whole = self.post("/v1/messages?beta=true", body)
        thinking, text, call, now = whole["content"]
        self.assertEqual((whole["stop_reason"], thinking["thinking"], text["text"]), ("tool_use", "I must look.", TEXT))
        self.assertEqual((call["name"], call["input"], now["input"]), ("get_weather", json.loads(ARGUMENTS), {}))
        events = list(self.server.typed_events("/v1/messages", **body))
        texts = [""] * 4
        for event in events:
            if event["type"] == "content_block_delta":
                texts[event["index"]] += "".join(value for key, value in event["delta"].items() if key != "type")
        self.assertEqual(texts, ["I must look.", TEXT, ARGUMENTS, "{}"])
        self.assertEqual([event["type"] for event in events[-2:]], ["message_delta", "message_stop"])
        self.assertEqual(events[-2]["usage"], whole["usage"])
        after = [{"role": "user", "content": "The time?"}, {"role": "assistant", "content": [now]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": now["id"], "content": "12:00"}]}]
        answer = self.post("/v1/messages", body | {"messages": after, "tools": body["tools"][1:]})
        self.assertEqual(answer["content"], [{"type": "text", "text": "It is noon."}])
        count = self.post("/v1/messages/count_tokens", {key: body[key] for key in ("messages", "tools")})
        self.assertEqual(count["input_tokens"], whole["usage"]["input_tokens"])

    def test_each_protocol_refuses_in_its_shape(self):
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"):
            for body in ("{", "[]", {}, {"bogus": 1}, {"messages": 5, "input": 5}, {"tools": [5], "messages": QUESTION, "input": "x"}):
                with self.subTest(path=path, body=body):
                    status, _, answer = self.server.request("POST", path, body)
                    self.assertEqual(status, 400)
                    self.assertNotIn("\n", answer["error"]["message"])
                    self.assertEqual(answer.get("type"), "error" if "messages" in path else None)

    def test_the_routes_and_their_parameters_are_described(self):
        paths = self.server.request("GET", "/openapi.json")[2]["paths"]
        for path, name in (("/v1/chat/completions", "tool_choice"), ("/v1/responses", "previous_response_id"),
                           ("/v1/messages", "stop_sequences"), ("/v1/messages/count_tokens", "system")):
            schema = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
            self.assertIn(name, schema["properties"])


class LlamaTest(CliTest):
    def test_calls_are_json_at_the_start_of_the_answer(self):
        script = self.work / "script.json"
        script.write_text(json.dumps({"answers": [{"text": '{"name": "now", "parameters": {"zone": "UTC"}}'}]}))
        template = TEMPLATES / "meta-llama-Llama-3.1-8B-Instruct.jinja"
        with Server("--model", f"scripted:{script}", "--chat-template", template) as server:
            tools = functions(lambda tool: {"type": "function", "function": tool}, "parameters")
            events = list(server.events("/v1/chat/completions", messages=QUESTION, tools=tools))[:-1]
            deltas = [event["choices"][0]["delta"] for event in events]
            calls = [delta["tool_calls"][0]["function"] for delta in deltas if "tool_calls" in delta]
            self.assertEqual(calls[0]["name"], "now")
            self.assertEqual("".join(call["arguments"] for call in calls), '{"zone": "UTC"}')
            self.assertEqual("".join(delta.get("content", "") for delta in deltas), "")


class DefaultsTest(CliTest):
    def test_the_log_names_what_the_engine_does_not_do(self):
        model = self.work / "model"
        model.mkdir()
        for file in (harness.SOURCE / "models/stories").iterdir():
            (model / file.name).symlink_to(file)
        (model / "generation_config.json").unlink()
        (model / "generation_config.json").write_text(json.dumps({"no_repeat_ngram_size": 3, "temperature": 0, "eos_token_id": 2047}))
        with Server("--model", model, "--max-batch-size", 1) as server:
            # Greedy without a word of it in the request.
            texts = [server.request("POST", "/v1/completions", {"prompt": "One day", "max_tokens": 20})[2]["choices"][0]["text"]
                     for _ in range(2)]
            self.assertEqual(texts[0], texts[1])
            server.end()
            self.assertEqual(sum("no_repeat_ngram_size 3" in line for line in server.log), 1)


if __name__ == "__main__":
    harness.main()
