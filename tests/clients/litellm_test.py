"""litellm: as a client of both protocols; streams, tools, schemas, text completions."""

import json
import os
import unittest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # asks no other server for prices

import clients
import litellm
from clients import ANSWER, ARGUMENTS, CONTENT, QUESTION, REASONING, RESULT
from pydantic import BaseModel, Field

litellm.telemetry = False
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": clients.WEATHER_SCHEMA}},
         {"type": "function", "function": {"name": "get_time", "parameters": clients.NO_ARGUMENTS}}]
STORIES = {"model": "openai/stories", "api_base": clients.STORIES_URL + "/v1", "api_key": clients.KEY}
SCRIPTED = {"model": "openai/scripted", "api_base": clients.SCRIPTED_URL + "/v1", "api_key": clients.KEY}
CLAUDE = {"model": "anthropic/scripted", "api_base": clients.SCRIPTED_URL, "api_key": clients.KEY, "max_tokens": 500}
STORY = [{"role": "user", "content": "Once upon a time"}]


class Person(BaseModel):
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=99)


class ChatTest(unittest.TestCase):
    def test_a_stream_joins_to_the_whole(self):
        body = STORIES | {"messages": STORY, "max_tokens": 20, "temperature": 0}
        whole = litellm.completion(**body)
        events = list(litellm.completion(**body, stream=True, stream_options={"include_usage": True}))
        text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(events[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_tools_in_both_protocols(self):
        for server in (SCRIPTED, CLAUDE):
            with self.subTest(model=server["model"]):
                body = server | {"messages": QUESTION, "tools": TOOLS}
                whole = litellm.completion(**body).choices[0]
                self.assertEqual((whole.finish_reason, whole.message.content), ("tool_calls", CONTENT))
                self.assertEqual(whole.message.reasoning_content, REASONING)
                calls = whole.message.tool_calls
                self.assertEqual([(call.function.name, json.loads(call.function.arguments)) for call in calls],
                                 [("get_weather", ARGUMENTS), ("get_time", {})])
                built = litellm.stream_chunk_builder(list(litellm.completion(**body, stream=True))).choices[0].message
                self.assertEqual(built.content, CONTENT)
                self.assertEqual([(call.function.name, json.loads(call.function.arguments)) for call in built.tool_calls],
                                 [("get_weather", ARGUMENTS), ("get_time", {})])
                results = [{"role": "tool", "tool_call_id": call.id, "content": RESULT} for call in calls]
                after = litellm.completion(**body | {"messages": [*QUESTION, whole.message.model_dump(), *results]})
                self.assertEqual(after.choices[0].message.content, ANSWER)

    def test_answers_fit_their_schema(self):
        answer = litellm.completion(**STORIES, messages=STORY, max_tokens=200, response_format=Person)
        Person.model_validate_json(answer.choices[0].message.content)

    def test_errors_have_the_classes_of_the_client(self):
        with self.assertRaises(litellm.BadRequestError):
            litellm.completion(**STORIES, messages=STORY, extra_body={"bogus": 1})
        with self.assertRaises(litellm.ContextWindowExceededError):
            litellm.completion(**STORIES, messages=[{"role": "user", "content": "word " * 3000}])


class OthersTest(unittest.TestCase):
    def test_text_completions(self):
        model = STORIES | {"model": "text-completion-openai/stories"}
        answer = litellm.text_completion(**model, prompt="Once upon a time", max_tokens=5, temperature=0)
        events = litellm.text_completion(**model, prompt="Once upon a time", max_tokens=5, temperature=0, stream=True)
        self.assertEqual("".join(event.choices[0].text or "" for event in events), answer.choices[0].text)

    def test_responses(self):
        answer = litellm.responses(**SCRIPTED, input="The time?")
        self.assertEqual(answer.output[-1].content[0].text, "It is noon.")


if __name__ == "__main__":
    clients.main()
