// The tools that a request lets the model call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"

namespace encore::server {

struct ToolUse {
  // As chat templates expect them: {"type": "function", "function": {"name": ...}}.
  json::array tools;
  bool allows_calls = true;    // else the model is not told of the tools
  bool parallel_calls = true;  // else one call ends the answer
};

// What a request says of a function, in whichever protocol. Null: it is not said.
struct FunctionFields {
  const json::value* name = nullptr;
  const json::value* description = nullptr;
  const json::value* parameters = nullptr;  // a JSON schema
};
// Adds the function to `use`. `where` names it in messages: "tools[0]". Returns what is wrong.
std::optional<ApiError> add_function(const FunctionFields& function, const std::string& where,
                                     ToolUse& use);

// "tools" of the chat API: functions within objects. Returns what is wrong.
std::optional<ApiError> read_chat_tools(const json::array& tools, ToolUse& use);
// "tool_choice" of the APIs of OpenAI. Returns what is wrong.
std::optional<ApiError> read_tool_choice(const json::value& choice, ToolUse& use);
// Of a choice that would force a call.
ApiError forced_call_error(std::string_view param);

// The names of the tools.
std::vector<std::string> names_of(const ToolUse& use);

}  // namespace encore::server
