"""What the suites of Python clients share: where the servers are, and the tools of the script."""

import os
import unittest

STORIES_URL = os.environ["ENCORE_STORIES_URL"]    # the bundled model, without /v1
SCRIPTED_URL = os.environ["ENCORE_SCRIPTED_URL"]  # script.json behind the template of a model that reasons and calls tools

KEY = "sk-of-nobody"
QUESTION = [{"role": "user", "content": "How is the weather?"}]
CONTENT = "One moment, \u00fcber \U0001f600."
REASONING = "I must look."
ARGUMENTS = {"city": "Z\u00fcrich", "days": 2}
RESULT = "12 degrees"
ANSWER = "It is 12 degrees in Z\u00fcrich."

WEATHER_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                  "required": ["city"], "additionalProperties": False}
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}

main = unittest.main
