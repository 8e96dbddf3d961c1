#include "text/answer/tool_call_parser.h"

#include "base/error.h"
#include "text/answer/hermes_calls.h"
#include "text/answer/json_calls.h"

namespace encore::text {

std::string_view name(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kNone:
      return "none";
    case ToolCallFormat::kHermes:
      return "hermes";
    case ToolCallFormat::kLlama3:
      return "llama3";
    case ToolCallFormat::kMistral:
      return "mistral";
  }
  return "";
}

ToolCallSyntax syntax(ToolCallFormat format) {
  ENCORE_CHECK(format != ToolCallFormat::kNone);
  ToolCallSyntax syntax{.before_name = R"({"name": ")",
                        .before_arguments = R"(", "arguments": )",
                        .behind_arguments = "}",
                        .separator = ", "};
  switch (format) {
    case ToolCallFormat::kNone:
      break;
    case ToolCallFormat::kHermes:
      syntax.before_name = "<tool_call>\n{\"name\": \"";
      syntax.behind_arguments = "}\n</tool_call>";
      syntax.separator = "\n";
      break;
    case ToolCallFormat::kLlama3:
      syntax.before_arguments = R"(", "parameters": )";
      syntax.separator = "; ";
      break;
    case ToolCallFormat::kMistral:
      syntax.marker = "[TOOL_CALLS]";
      syntax.opening = "[";
      syntax.closing = "]";
      break;
  }
  return syntax;
}

std::unique_ptr<ToolCallParser> make_tool_call_parser(ToolCallFormat format,
                                                      std::vector<std::string> tools) {
  ENCORE_CHECK(format != ToolCallFormat::kNone);
  if (format == ToolCallFormat::kHermes) return std::make_unique<HermesCalls>();
  const bool is_llama = format == ToolCallFormat::kLlama3;
  return std::make_unique<JsonCalls>(is_llama ? kLlama3Calls : kMistralCalls, std::move(tools));
}

}  // namespace encore::text
