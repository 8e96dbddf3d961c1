// Finds calls of tools in the text of an answer, in the format that the model was taught.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/answer_part.h"

namespace encore::text {

// The ways in which models write calls of tools.
enum class ToolCallFormat : uint8_t {
  kNone,     // the model writes no calls, or writes them in an unknown way
  kHermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>; Hermes, Qwen 2.5 and 3
  kLlama3,   // {"name": ..., "parameters": {...}} at the start of a line
  kMistral,  // [TOOL_CALLS] [{"name": ..., "arguments": {...}}]
};
// Returns the name of a format: "none", "hermes", "llama3" or "mistral".
std::string_view name(ToolCallFormat format);

// Spells an answer that consists of calls only: the marker, the opening, the calls with separators
// between them, and the closing. The name of a call's tool stands behind `before_name`, its
// arguments behind `before_arguments`.
struct ToolCallSyntax {
  std::string_view marker;
  std::string_view opening;
  std::string_view before_name;
  std::string_view before_arguments;
  std::string_view behind_arguments;
  std::string_view separator;
  std::string_view closing;
};
// Returns how the format spells an answer that consists of calls. REQUIRES: the format is not
// kNone.
ToolCallSyntax syntax(ToolCallFormat format);

// Divides text into content and calls. The parts do not depend on how the text is cut: text that
// may be the start of a call is held back until it is known. White space around a call is not
// content. Text that only resembles a call is content, unchanged. Threads: one at a time.
class ToolCallParser {
 public:
  virtual ~ToolCallParser() = default;

  virtual void push(std::string_view text, AnswerParts& out) = 0;
  // Ends the text and appends the parts that are still held back.
  virtual void finish(AnswerParts& out) = 0;
  // Returns how many calls have complete arguments.
  [[nodiscard]] virtual int64_t num_complete() const = 0;
};

// Makes a parser for the format. `tools` holds the names of the request's tools; without them, the
// Llama 3 format cannot tell a call from other JSON. REQUIRES: the format is not kNone.
std::unique_ptr<ToolCallParser> make_tool_call_parser(ToolCallFormat format,
                                                      std::vector<std::string> tools);

}  // namespace encore::text
