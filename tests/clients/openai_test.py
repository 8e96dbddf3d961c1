"""The openai package: models, completions, chat and responses; streams, tools, schemas, errors."""

import asyncio
import json
import unittest
from typing import Literal

import clients
import openai
from clients import ANSWER, ARGUMENTS, CONTENT, QUESTION, REASONING, RESULT
from pydantic import BaseModel, Field

STORIES = openai.OpenAI(base_url=clients.STORIES_URL + "/v1", api_key=clients.KEY, max_retries=0)
SCRIPTED = openai.OpenAI(base_url=clients.SCRIPTED_URL + "/v1", api_key=clients.KEY, max_retries=0)

FUNCTIONS = [{"name": "get_weather", "description": "Says it", "parameters": clients.WEATHER_SCHEMA, "strict": True},
             {"name": "get_time", "parameters": clients.NO_ARGUMENTS, "strict": True}]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
STORY = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Once upon a time"}]


class Person(BaseModel):
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=99)
    mood: Literal["glad", "sad"]


class ModelsTest(unittest.TestCase):
    def test_models_are_listed_and_retrieved(self):
        names = [model.id for model in STORIES.models.list()]
        self.assertEqual(names, ["stories"])
        self.assertEqual(STORIES.models.retrieve("stories").object, "model")
        with self.assertRaises(openai.NotFoundError) as caught:
            STORIES.models.retrieve("gpt-none")
        self.assertEqual(caught.exception.code, "model_not_found")


class CompletionsTest(unittest.TestCase):
    def test_a_stream_joins_to_the_whole(self):
        body = {"model": "stories", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0}
        whole = STORIES.completions.create(**body)
        events = list(STORIES.completions.create(**body, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(event.choices[0].text for event in events[:-1]), whole.choices[0].text)
        self.assertEqual(events[-1].choices, [])
        self.assertEqual(events[-1].usage, whole.usage)
        self.assertEqual(whole.usage.completion_tokens, 20)
        self.assertEqual(whole.choices[0].finish_reason, "length")

    def test_several_prompts_choices_and_log_probabilities(self):
        answer = STORIES.completions.create(model="stories", prompt=["One day", "Tom"], n=2, max_tokens=4, logprobs=2, seed=1)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2, 3])
        for choice in answer.choices:
            self.assertEqual(len(choice.logprobs.tokens), 4)
            self.assertTrue(all(value <= 0 for value in choice.logprobs.token_logprobs))

    def test_prompts_of_token_ids_and_stops(self):
        answer = STORIES.completions.create(model="stories", prompt=[1, 2, 3], max_tokens=3)
        self.assertEqual(answer.usage.prompt_tokens, 3)
        whole = STORIES.completions.create(model="stories", prompt="Once", max_tokens=40, temperature=0)
        stop = whole.choices[0].text[10:14]
        cut = STORIES.completions.create(model="stories", prompt="Once", max_tokens=40, temperature=0, stop=stop)
        self.assertEqual(cut.choices[0].text, whole.choices[0].text.split(stop)[0])
        self.assertEqual(cut.choices[0].finish_reason, "stop")


class ChatTest(unittest.TestCase):
    def test_a_stream_joins_to_the_whole(self):
        body = {"model": "stories", "messages": STORY, "max_completion_tokens": 20, "temperature": 0}
        whole = STORIES.chat.completions.create(**body)
        events = list(STORIES.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(event.choices[0].delta.content or "" for event in events[:-1]), whole.choices[0].message.content)
        self.assertEqual(events[-1].usage, whole.usage)
        self.assertEqual({event.id for event in events}, {events[0].id})

    def test_what_clients_send_beside_is_accepted(self):
        answer = STORIES.chat.completions.create(
            model="stories", messages=STORY, max_tokens=3, metadata={"a": "b"}, store=False, user="u", service_tier="auto",
            safety_identifier="s", prompt_cache_key="k", prompt_cache_retention="in_memory", verbosity="low", frequency_penalty=0.1, presence_penalty=0.1, logit_bias={"5": -1},
            logprobs=True, top_logprobs=2, n=2, seed=7, top_p=0.9, stop=["\n\n"])
        self.assertEqual(len(answer.choices), 2)
        self.assertEqual(len(answer.choices[0].logprobs.content[0].top_logprobs), 2)

    def test_the_helper_for_streams_gives_tools_content_and_the_whole(self):
        with SCRIPTED.chat.completions.stream(model="scripted", messages=QUESTION, tools=TOOLS) as stream:
            events = list(stream)
            whole = stream.get_final_completion()
        self.assertEqual("".join(event.delta for event in events if event.type == "content.delta"), CONTENT)
        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        self.assertEqual([(event.name, json.loads(event.arguments)) for event in done],
                         [("get_weather", ARGUMENTS), ("get_time", {})])
        message = whole.choices[0].message
        self.assertEqual(whole.choices[0].finish_reason, "tool_calls")
        self.assertEqual(message.tool_calls[0].function.parsed_arguments, ARGUMENTS)

    def test_results_of_tools_go_back(self):
        first = SCRIPTED.chat.completions.create(model="scripted", messages=QUESTION, tools=TOOLS).choices[0].message
        self.assertEqual(first.reasoning_content, REASONING)
        results = [{"role": "tool", "tool_call_id": call.id, "content": RESULT} for call in first.tool_calls]
        after = SCRIPTED.chat.completions.create(model="scripted", messages=[*QUESTION, first, *results], tools=TOOLS)
        self.assertEqual((after.choices[0].message.content, after.choices[0].finish_reason), (ANSWER, "stop"))

    def test_answers_are_parsed_by_their_schema(self):
        answer = STORIES.chat.completions.parse(model="stories", messages=STORY, response_format=Person, max_tokens=200)
        self.assertIsInstance(answer.choices[0].message.parsed, Person)

    def test_json_objects_begin_as_such(self):
        answer = STORIES.chat.completions.create(model="stories", messages=STORY, response_format={"type": "json_object"},
                                                 max_tokens=10)
        self.assertEqual(answer.choices[0].message.content[0], "{")

    def test_a_named_tool_is_called_and_parsed(self):
        tool = openai.pydantic_function_tool(Person)
        answer = SCRIPTED.chat.completions.parse(
            model="scripted", messages=[{"role": "user", "content": "Who wrote it?"}], tools=[
                {"type": "function", "function": tool["function"] | {"parameters": clients.WEATHER_SCHEMA, "strict": True}}],
            tool_choice={"type": "function", "function": {"name": "Person"}})
        self.assertEqual(json.loads(answer.choices[0].message.tool_calls[0].function.arguments), {"name": "Ada", "age": 36})

    def test_many_at_once_by_the_asynchronous_client(self):
        async def ask_all():
            async with openai.AsyncOpenAI(base_url=clients.STORIES_URL + "/v1", api_key=clients.KEY) as client:
                async def ask():
                    stream = await client.chat.completions.create(model="stories", messages=STORY, max_tokens=10, temperature=0,
                                                                  stream=True)
                    return "".join([event.choices[0].delta.content or "" async for event in stream])
                return await asyncio.gather(*(ask() for _ in range(8)))
        self.assertEqual(len(set(asyncio.run(ask_all()))), 1)


class ResponsesTest(unittest.TestCase):
    def test_text_whole_and_streamed(self):
        body = {"model": "stories", "input": "Once upon a time", "max_output_tokens": 20, "temperature": 0}
        whole = STORIES.responses.create(**body, instructions="Be brief.")
        events = list(STORIES.responses.create(**body, stream=True))
        self.assertEqual("".join(event.delta for event in events if event.type == "response.output_text.delta"),
                         whole.output_text)
        self.assertEqual(events[-1].type, "response.incomplete")
        self.assertEqual(whole.incomplete_details.reason, "max_output_tokens")

    def test_the_helper_for_streams_follows_every_event(self):
        with SCRIPTED.responses.stream(model="scripted", input="How is the weather?",
                                       tools=[{"type": "function"} | function for function in FUNCTIONS]) as stream:
            for _ in stream:
                pass
            final = stream.get_final_response()
        self.assertEqual(final.output_text, CONTENT)
        calls = [item for item in final.output if item.type == "function_call"]
        self.assertEqual(calls[0].parsed_arguments, ARGUMENTS)
        output = [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT} for call in calls]
        after = SCRIPTED.responses.create(model="scripted", input=[*QUESTION, *final.output, *output])
        self.assertEqual(after.output_text, ANSWER)

    def test_answers_are_parsed_by_their_schema(self):
        answer = STORIES.responses.parse(model="stories", input="Who?", text_format=Person, max_output_tokens=200)
        self.assertIsInstance(answer.output_parsed, Person)


class ErrorsTest(unittest.TestCase):
    def test_errors_have_the_classes_of_the_client(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            STORIES.chat.completions.create(model="stories", messages=STORY, extra_body={"bogus": 1})
        self.assertEqual(caught.exception.param, "bogus")
        with self.assertRaises(openai.BadRequestError) as caught:
            STORIES.completions.create(model="stories", prompt="word " * 3000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.NotFoundError):
            STORIES.chat.completions.create(model="gpt-none", messages=STORY)

    def test_a_stream_that_is_left_does_not_disturb_the_next(self):
        stream = STORIES.completions.create(model="stories", prompt="Once", max_tokens=500, stream=True)
        next(iter(stream))
        stream.close()
        self.assertEqual(STORIES.completions.create(model="stories", prompt="Once", max_tokens=2).usage.completion_tokens, 2)


if __name__ == "__main__":
    clients.main()
