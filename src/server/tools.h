// The tools that a request lets the model call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "server/answer_format.h"
#include "server/api_error.h"

namespace encore::server {

enum class ToolChoice : uint8_t {
  kNone,  // the model is not told of the tools
  kAuto,
  kRequired,  // the answer is a call
};

struct ToolUse {
  // As chat templates expect them: {"type": "function", "function": {"name": ...}}.
  json::array tools;
  ToolChoice choice = ToolChoice::kAuto;
  std::string required_name;          // of kRequired: the tool that is called; empty: any
  bool parallel_calls = true;         // else one call ends the answer
  std::vector<std::string> left_out;  // the types of tools that are no functions
};

// Decides about tools that are no functions. The server has none of these, but clients offer them
// beside functions, such as a search of the web.
enum class OtherTools : uint8_t { kLeaveOut, kRefuse };

// The fields with which a protocol describes a function. Null: the request does not give it.
struct FunctionFields {
  const json::value* name = nullptr;
  const json::value* description = nullptr;
  const json::value* parameters = nullptr;  // a JSON schema
};
// Adds the function to `use`. `where` names it in messages: "tools[0]". Returns an error if it is
// wrong.
std::optional<ApiError> add_function(const FunctionFields& function, const std::string& where,
                                     ToolUse& use);

// Notes that a tool of the type is left out. `where`: as above. Returns an error if it is wrong.
std::optional<ApiError> leave_out(const json::value* type, const std::string& where, ToolUse& use);
// Adds the tools that were left out to `warnings`, or returns an error if none may be.
std::optional<ApiError> check_left_out(const ToolUse& use, OtherTools other_tools,
                                       std::vector<std::string>& warnings);

// Reads "tools" of the chat API: functions within objects. Returns an error if one is wrong.
std::optional<ApiError> read_chat_tools(const json::array& tools, ToolUse& use);
// Reads "tool_choice" of OpenAI's APIs. Returns an error if it is wrong.
std::optional<ApiError> read_tool_choice(const json::value& choice, ToolUse& use);
// The names of the tools.
std::vector<std::string> names_of(const ToolUse& use);

// The format of an answer with the calls that the choice requires, as the model writes calls.
// REQUIRES: kRequired. Errors: there is no tool that it may call.
std::variant<ApiError, AnswerFormat> required_calls(const ToolUse& use,
                                                    text::ToolCallFormat format);

}  // namespace encore::server
