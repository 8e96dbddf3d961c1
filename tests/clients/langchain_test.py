"""langchain-openai: ChatOpenAI and OpenAI, their streams, tools and structured output."""

import asyncio
import unittest

import clients
from clients import ANSWER, ARGUMENTS, CONTENT, RESULT
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, Field


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=99)


@tool
def get_weather(city: str, days: int = 1) -> str:
    """Says it."""
    return f"{RESULT} in {city} for {days} days"


@tool
def get_time() -> str:
    """Says it."""
    return "noon"


def stories(**options):
    return ChatOpenAI(base_url=clients.STORIES_URL + "/v1", api_key=clients.KEY, model="stories", max_retries=0,
                      **{"max_tokens": 20, "temperature": 0} | options)


def scripted(**options):
    return ChatOpenAI(base_url=clients.SCRIPTED_URL + "/v1", api_key=clients.KEY, model="scripted", max_retries=0, **options)


STORY = [SystemMessage("Be brief."), HumanMessage("Once upon a time")]
QUESTION = [HumanMessage("How is the weather?")]


class ChatTest(unittest.TestCase):
    def test_a_stream_joins_to_the_whole(self):
        whole = stories().invoke(STORY)
        parts = list(stories(stream_usage=True).stream(STORY))
        self.assertEqual("".join(part.text for part in parts), whole.text)
        self.assertEqual(sum((part.usage_metadata or {}).get("output_tokens", 0) for part in parts), 20)
        self.assertEqual(whole.usage_metadata["output_tokens"], 20)

    def test_several_at_once_and_asynchronously(self):
        texts = [answer.text for answer in stories().batch([STORY] * 4)]
        async def stream():
            return "".join([part.text async for part in stories().astream(STORY)])
        self.assertEqual(set(texts), {asyncio.run(stream())})

    def test_a_tool_is_called_and_its_result_goes_back(self):
        model = scripted().bind_tools([get_weather, get_time])
        for answer in (model.invoke(QUESTION), sum(list(model.stream(QUESTION))[1:], next(model.stream(QUESTION)))):
            self.assertEqual(answer.text, CONTENT)
            self.assertEqual([(call["name"], call["args"]) for call in answer.tool_calls],
                             [("get_weather", ARGUMENTS), ("get_time", {})])
        results = [ToolMessage((get_weather if call["name"] == "get_weather" else get_time).invoke(call["args"]),
                               tool_call_id=call["id"]) for call in answer.tool_calls]
        self.assertEqual(model.invoke([*QUESTION, answer, *results]).text, ANSWER)

    def test_structured_output_by_schema_and_by_a_tool(self):
        person = stories(max_tokens=200, temperature=1).with_structured_output(Person, method="json_schema").invoke("Who?")
        self.assertIsInstance(person, Person)
        person = scripted().with_structured_output(Person, method="function_calling").invoke("Who wrote it?")
        self.assertEqual(person, Person(name="Ada", age=36))

    def test_responses_of_the_newer_protocol(self):
        model = scripted(use_responses_api=True, output_version="responses/v1").bind_tools([get_weather, get_time])
        answer = model.invoke(QUESTION)
        self.assertEqual([(call["name"], call["args"]) for call in answer.tool_calls],
                         [("get_weather", ARGUMENTS), ("get_time", {})])
        results = [ToolMessage(RESULT, tool_call_id=call["id"]) for call in answer.tool_calls]
        self.assertEqual(model.invoke([*QUESTION, answer, *results]).text, ANSWER)
        self.assertIn(CONTENT, "".join(part.text for part in model.stream(QUESTION)))


class CompletionsTest(unittest.TestCase):
    def test_a_stream_joins_to_the_whole(self):
        model = OpenAI(base_url=clients.STORIES_URL + "/v1", api_key=clients.KEY, model="stories", max_tokens=10, temperature=0)
        self.assertEqual("".join(model.stream("Once upon a time")), model.invoke("Once upon a time"))


if __name__ == "__main__":
    clients.main()
