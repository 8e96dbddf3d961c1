// Finds calls of tools as Hermes and Qwen models write them.
#pragma once

#include <optional>

#include "text/answer/call_scanner.h"
#include "text/answer/content_beside_calls.h"
#include "text/answer/marker_search.h"
#include "text/answer/tool_call_parser.h"

namespace encore::text {

// Finds any number of calls of the form <tool_call>{"name": "f", "arguments": {...}}</tool_call>.
class HermesCalls final : public ToolCallParser {
 public:
  void push(std::string_view text, AnswerParts& out) override;
  void finish(AnswerParts& out) override;
  [[nodiscard]] int64_t num_complete() const override { return num_complete_; }

 private:
  static constexpr std::string_view kOpening = "<tool_call>";
  static constexpr std::string_view kClosing = "</tool_call>";

  enum class State : uint8_t {
    kContent,
    kCall,             // within the JSON
    kBehindCall,       // the JSON is complete, the closing marker is not
    kBrokenArguments,  // the JSON is broken, but the call has begun: the rest counts as arguments
  };

  void push(char byte, AnswerParts& out);
  void push_content(char byte, AnswerParts& out);
  void push_call(char byte, AnswerParts& out);
  void push_behind_call(char byte, AnswerParts& out);
  void begin_call(std::string spaces);

  State state_ = State::kContent;
  MarkerSearch opening_{kOpening};
  MarkerSearch closing_{kClosing};
  std::optional<CallScanner> scanner_;
  std::string raw_;  // the text of a possible call, or of what stands behind a call, as written
  ContentBesideCalls content_;
  int64_t num_complete_ = 0;
};

}  // namespace encore::text
