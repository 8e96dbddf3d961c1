// Reads the tools that a request lets the model call.
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
  kNone,  // the prompt does not mention the tools
  kAuto,
  kRequired,  // the answer must be a tool call
};

struct ToolUse {
  // The tools in the form that chat templates expect: {"type": "function", "function": {"name":
  // ...}}.
  json::array tools;
  ToolChoice choice = ToolChoice::kAuto;
  std::string required_name;   // with kRequired, the tool that must be called; empty: any tool
  bool parallel_calls = true;  // if false, the answer ends with its first call
  std::vector<std::string> left_out;  // types of the request's tools that are not functions
};

// Says what happens to tools that are not functions, such as a web search. The server cannot run
// them, but clients often list them beside functions. They are left out, or the request is refused.
enum class OtherTools : uint8_t { kLeaveOut, kRefuse };

// The fields by which a protocol describes a function. A field is null if the request does not give
// it.
struct FunctionFields {
  const json::value* name = nullptr;
  const json::value* description = nullptr;
  const json::value* parameters = nullptr;  // a JSON schema
};
// Adds a function to `use`. `where` is its place in the request, for messages: "tools[0]". Returns
// an error if the function is not valid.
std::optional<ApiError> add_function(const FunctionFields& function, const std::string& where,
                                     ToolUse& use);

// Records that a tool of this type is left out. `where` is its place in the request, as for
// add_function(). Returns an error if the type is not valid.
std::optional<ApiError> leave_out(const json::value* type, const std::string& where, ToolUse& use);
// Adds a warning about the tools that were left out to `warnings`. Returns an error instead if
// `other_tools` refuses such tools.
std::optional<ApiError> check_left_out(const ToolUse& use, OtherTools other_tools,
                                       std::vector<std::string>& warnings);

// Reads the parameter "tools" of OpenAI's chat API, which lists functions within objects. Returns
// an error if a tool is not valid.
std::optional<ApiError> read_chat_tools(const json::array& tools, ToolUse& use);
// Reads the parameter "tool_choice" of OpenAI's APIs. Returns an error if it is not valid.
std::optional<ApiError> read_tool_choice(const json::value& choice, ToolUse& use);
// Returns the names of the tools.
std::vector<std::string> names_of(const ToolUse& use);

// Returns the answer format that admits only the tool calls that the request requires, in the
// model's syntax for calls. REQUIRES: the choice is kRequired. Returns an error if there is no tool
// that the answer may call.
std::variant<ApiError, AnswerFormat> required_calls(const ToolUse& use,
                                                    text::ToolCallFormat format);

}  // namespace encore::server
