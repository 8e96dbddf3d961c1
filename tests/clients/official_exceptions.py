"""A plugin of pytest: the tests in the openai package's archive that do not fit this server, and why.

Those tests were generated from OpenAI's description, for a mock that accepts every value of the right type.
"""

import pytest

# A part of the test's id, and the reason.
EXCEPTIONS = (
    ("Models::test_method_delete", "models are what the server was started with"),
    ("Models::test_raw_response_delete", "the same"),
    ("Models::test_streaming_response_delete", "the same"),
    ("Completions::test_method_create_with_all_params", "has audio, best_of 0, max_tokens 0 and a bias of the token foo"),
    ("Responses::test_method_create_with_all_params", "has a stored response, background work and tools of OpenAI's"),
    ("Responses::test_method_create_overload", "has no input, so there is nothing to answer"),
    ("Responses::test_raw_response_create_overload", "the same"),
    ("Responses::test_streaming_response_create_overload", "the same"),
    *((f"{name}::test_{kind}_{action}", "the server stores nothing")
      for name, actions in (("Completions", ("retrieve", "update", "list", "delete")),
                            ("Responses", ("retrieve", "delete", "cancel", "compact")))
      for action in actions for kind in ("method", "raw_response", "streaming_response")),
)


def pytest_collection_modifyitems(items):
    for item in items:
        name = item.nodeid.replace("TestAsync", "Test")
        for part, reason in EXCEPTIONS:
            if "Test" + part in name:
                item.add_marker(pytest.mark.skip(reason=reason))
