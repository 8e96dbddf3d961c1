"""The anthropic package: messages, their streams, tools, thinking, token counts and schemas."""

import unittest
from typing import Literal

import anthropic
import clients
from clients import ANSWER, ARGUMENTS, CONTENT, QUESTION, REASONING, RESULT
from pydantic import BaseModel

STORIES = anthropic.Anthropic(base_url=clients.STORIES_URL, api_key=clients.KEY, max_retries=0)
SCRIPTED = anthropic.Anthropic(base_url=clients.SCRIPTED_URL, api_key=clients.KEY, max_retries=0)
TOOLS = [{"name": "get_weather", "description": "Says it", "input_schema": clients.WEATHER_SCHEMA},
         {"name": "get_time", "input_schema": clients.NO_ARGUMENTS}]
STORY = {"model": "stories", "max_tokens": 20, "extra_body": {"temperature": 0}, "messages": [{"role": "user", "content": "Once upon a time"}]}
WEATHER = {"model": "scripted", "max_tokens": 500, "messages": QUESTION, "tools": TOOLS}


class Person(BaseModel):  # without bounds, which the client would leave out
    is_old: bool
    mood: Literal["glad", "sad"]


class MessagesTest(unittest.TestCase):
    def test_a_stream_joins_to_the_whole(self):
        whole = STORIES.messages.create(**STORY)
        with STORIES.messages.stream(**STORY) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual((text, final.content[0].text), (whole.content[0].text, text))
        self.assertEqual((final.stop_reason, final.usage.output_tokens), ("max_tokens", 20))

    def test_events_as_they_come(self):
        kinds = [event.type for event in STORIES.messages.create(**STORY, stream=True)]
        self.assertEqual((kinds[0], kinds[-2:]), ("message_start", ["message_delta", "message_stop"]))

    def test_system_stops_and_what_else_is_sent(self):
        answer = STORIES.messages.create(**STORY, system=[{"type": "text", "text": "Be brief."}], stop_sequences=["zzz"],
                                         metadata={"user_id": "u"}, service_tier="auto")
        self.assertEqual(answer.role, "assistant")

    def test_tools_and_thinking_whole_and_streamed(self):
        whole = SCRIPTED.messages.create(**WEATHER)
        self.assertEqual([block.type for block in whole.content], ["thinking", "text", "tool_use", "tool_use"])
        self.assertEqual((whole.content[0].thinking, whole.content[1].text), (REASONING, CONTENT))
        self.assertEqual((whole.content[2].input, whole.stop_reason), (ARGUMENTS, "tool_use"))
        with SCRIPTED.messages.stream(**WEATHER) as stream:
            final = stream.get_final_message()
        self.assertEqual([block.type for block in final.content], [block.type for block in whole.content])
        self.assertEqual(final.content[2].input, ARGUMENTS)

    def test_results_of_tools_go_back(self):
        first = SCRIPTED.messages.create(**WEATHER)
        results = [{"type": "tool_result", "tool_use_id": block.id, "content": RESULT}
                   for block in first.content if block.type == "tool_use"]
        after = SCRIPTED.messages.create(**WEATHER | {"messages": [
            *QUESTION, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]})
        self.assertEqual((after.content[-1].text, after.stop_reason), (ANSWER, "end_turn"))

    def test_the_tool_runner_goes_to_the_end(self):
        @anthropic.beta_tool
        def get_weather(city: str, days: int = 1) -> str:
            """Says it.

            Args:
                city: where
                days: how many
            """
            self.assertEqual({"city": city, "days": days}, ARGUMENTS)
            return RESULT

        @anthropic.beta_tool
        def get_time() -> str:
            """Says it."""
            return "noon"

        # A thread would be stored by the server.
        final = SCRIPTED.beta.messages.tool_runner(model="scripted", max_tokens=500, messages=QUESTION, thread=False,
                                                   tools=[get_weather, get_time]).until_done()
        self.assertEqual(final.content[-1].text, ANSWER)

    def test_tokens_are_counted(self):
        count = SCRIPTED.messages.count_tokens(model="scripted", messages=QUESTION, tools=TOOLS).input_tokens
        self.assertEqual(count, SCRIPTED.messages.create(**WEATHER).usage.input_tokens)

    def test_answers_are_parsed_by_their_schema(self):
        answer = STORIES.messages.parse(**STORY | {"max_tokens": 200, "extra_body": {"temperature": 1}}, output_format=Person)
        self.assertIsInstance(answer.parsed_output, Person)


class OthersTest(unittest.TestCase):
    def test_models(self):
        self.assertEqual([model.id for model in STORIES.models.list()], ["stories"])
        self.assertEqual(STORIES.models.retrieve("stories").id, "stories")

    def test_errors_have_the_classes_of_the_client(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            STORIES.messages.create(**STORY | {"extra_body": {"bogus": 1}})
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.NotFoundError):
            STORIES.messages.create(**STORY | {"model": "none"})


if __name__ == "__main__":
    clients.main()
