"""serve: answers that are held to a format fit it, whatever the bundled model would rather say."""

import concurrent.futures
import json
import re

import harness
from harness import SOURCE, CliTest
from server_process import PROMPT, Server

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
}
QUESTION = [{"role": "user", "content": "Who is it?"}]


class StructuredTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = Server("--max-seq-len", 512)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        super().tearDownClass()

    def assert_fits(self, text):
        value = json.loads(text)
        self.assertEqual(sorted(value), ["age", "name", "tags"])
        self.assertIsInstance(value["name"], str)
        self.assertLessEqual(len(value["name"]), 12)
        self.assertIn(value["age"], range(100))
        self.assertLessEqual(len(value["tags"]), 3)
        self.assertLessEqual(set(value["tags"]), {"red", "green"})

    def texts(self, **parameters):
        body = self.server.complete(**{"temperature": 1, "max_tokens": 200} | parameters)
        self.assertEqual({choice["finish_reason"] for choice in body["choices"]}, {"stop"})
        return [choice["text"] for choice in body["choices"]]

    def test_every_sampled_answer_fits_a_schema(self):
        for text in self.texts(n=12, structured_outputs={"json": SCHEMA}):
            self.assert_fits(text)

    def test_every_sampled_answer_fits_a_regular_expression_a_choice_and_a_grammar(self):
        for text in self.texts(n=6, structured_outputs={"regex": "[a-f]{3}-[0-9]{2,5}"}):
            self.assertTrue(re.fullmatch("[a-f]{3}-[0-9]{2,5}", text), text)
        for text in self.texts(n=6, structured_outputs={"choice": ["yes", "no", "not yet"]}):
            self.assertIn(text, ("yes", "no", "not yet"))
        grammar = 'root ::= "(" root ")" | "x"'
        for text in self.texts(n=4, logit_bias={}, structured_outputs={"grammar": grammar}):
            depth = text.count("(")
            self.assertEqual(text, "(" * depth + "x" + ")" * depth)

    def test_every_protocol_and_a_stream_fit_a_schema(self):
        chat = {"messages": QUESTION, "temperature": 1, "max_tokens": 200,
                "response_format": {"type": "json_schema", "json_schema": {"name": "who", "schema": SCHEMA}}}
        status, _, body = self.server.request("POST", "/v1/chat/completions", chat)
        self.assertEqual(status, 200, body)
        self.assert_fits(body["choices"][0]["message"]["content"])
        events = list(self.server.events("/v1/chat/completions", **chat))[:-1]
        self.assert_fits("".join(event["choices"][0]["delta"].get("content", "") for event in events))
        status, _, body = self.server.request("POST", "/v1/responses", {
            "input": "Who?", "temperature": 1, "max_output_tokens": 200,
            "text": {"format": {"type": "json_schema", "name": "who", "schema": SCHEMA}}})
        self.assertEqual(status, 200, body)
        self.assert_fits(body["output"][-1]["content"][0]["text"])
        status, _, body = self.server.request("POST", "/v1/messages", {
            "messages": QUESTION, "temperature": 1, "max_tokens": 200,
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
        self.assertEqual(status, 200, body)
        self.assert_fits(body["content"][0]["text"])

    def test_others_get_the_tokens_that_they_would_get_alone(self):
        alone = self.server.complete(max_tokens=60)["choices"][0]["text"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            held = [pool.submit(self.texts, n=2, structured_outputs={"json": SCHEMA}) for _ in range(4)]
            plain = [pool.submit(self.server.complete, max_tokens=60) for _ in range(4)]
            for answer in plain:
                self.assertEqual(answer.result()["choices"][0]["text"], alone)
            for answer in held:
                for text in answer.result():
                    self.assert_fits(text)

    def test_an_answer_that_is_cut_short_is_the_beginning_of_one(self):
        body = self.server.complete(max_tokens=3, structured_outputs={"choice": ["abcdefghijklmnopqrstuvwxyz"]})
        choice = body["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertTrue("abcdefghijklmnopqrstuvwxyz".startswith(choice["text"]) and choice["text"])

    def test_a_bad_format_is_refused_and_the_server_goes_on(self):
        for outputs in ({"regex": "(" * 200}, {"json": {"type": "nothing"}}, {"grammar": "x ::= y"},
                        {"choice": ["a"] * 5000}, {"json": {"$ref": "#"}}):
            status, _, body = self.server.request("POST", "/v1/completions",
                                                  {"prompt": PROMPT, "structured_outputs": outputs})
            self.assertEqual(status, 400, (outputs, body))
            self.assertTrue(body["error"]["param"].startswith("structured_outputs."), body)
        self.assertEqual(len(self.texts(structured_outputs={"choice": ["fine"]})), 1)
        self.assertIn("encore_grammar_seconds_count", self.server.metrics() and
                      self.server.request("GET", "/metrics")[2])


class RequiredCallsTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        template = SOURCE / "src/text/testdata/chat_templates/qwen3.jinja"
        cls.server = Server("--max-batch-size", 8, "--chat-template", template)

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        super().tearDownClass()

    def ask(self, path, **parameters):
        status, _, body = self.server.request("POST", path, {"temperature": 1} | parameters)
        self.assertEqual(status, 200, body)
        return body

    def assert_is_call(self, name, arguments):
        self.assertEqual(name, "note")
        self.assertEqual(sorted(arguments), ["age", "name", "tags"])
        self.assertIn(arguments["age"], range(100))

    def test_an_answer_is_a_call_of_the_tool_in_every_protocol(self):
        function = {"name": "note", "description": "Keeps it", "parameters": SCHEMA}
        other = {"name": "forget", "parameters": {"type": "object", "properties": {}}}
        wrap = lambda tool: {"type": "function", "function": tool}
        for choice, tools in (("required", [function]), (wrap({"name": "note"}), [other, function])):
            body = self.ask("/v1/chat/completions", messages=QUESTION, max_tokens=300, n=4, tools=list(map(wrap, tools)),
                            tool_choice=choice, parallel_tool_calls=False)
            for choice in body["choices"]:
                self.assertEqual(choice["finish_reason"], "tool_calls")
                self.assertFalse(choice["message"]["content"])
                [call] = choice["message"]["tool_calls"]
                self.assert_is_call(call["function"]["name"], json.loads(call["function"]["arguments"]))
        body = self.ask("/v1/responses", input="Who?", max_output_tokens=300, tools=[{"type": "function"} | other, {"type": "function"} | function],
                        tool_choice={"type": "function", "name": "note"})
        [call] = body["output"]
        self.assert_is_call(call["name"], json.loads(call["arguments"]))
        body = self.ask("/v1/messages", messages=QUESTION, max_tokens=300, tools=[{"name": "note", "input_schema": SCHEMA}],
                        tool_choice={"type": "any", "disable_parallel_tool_use": True})
        [call] = body["content"]
        self.assertEqual(body["stop_reason"], "tool_use")
        self.assert_is_call(call["name"], call["input"])

    def test_several_calls_may_come_in_a_row(self):
        tools = [{"type": "function", "function": {"name": name}} for name in ("on", "off")]
        line = self.server.request("POST", "/tokenize", {"prompt": "a\n", "add_special_tokens": False})[2]["tokens"][-1]
        body = self.ask("/v1/chat/completions", messages=QUESTION, max_tokens=200, n=2, tools=tools, tool_choice="required",
                        logit_bias={str(line): 100})  # which goes on behind a call
        calls = [choice["message"]["tool_calls"] for choice in body["choices"]]
        self.assertLessEqual({call["function"]["name"] for row in calls for call in row}, {"on", "off"})
        self.assertGreater(max(map(len, calls)), 1)


if __name__ == "__main__":
    harness.main()
