// Finds calls of tools as Llama 3 and Mistral models write them: as JSON without a closing marker.
#pragma once

#include <optional>

#include "text/answer/call_scanner.h"
#include "text/answer/content_beside_calls.h"
#include "text/answer/marker_search.h"
#include "text/answer/tool_call_parser.h"

namespace encore::text {

// The way in which a model writes calls as JSON.
struct JsonCallStyle {
  std::string_view marker;      // stands in front of a call and is not shown
  std::string_view separators;  // bytes between and around calls, besides white space
  // Says that an object at the start of a line is a call even without the marker. Other JSON can
  // stand there, so the object counts as a call only if it names one of the request's tools.
  bool needs_no_marker = false;
};

// Llama 3 writes {"name": "f", "parameters": {...}}, with or without <|python_tag|> in front of it.
inline constexpr JsonCallStyle kLlama3Calls = {"<|python_tag|>", ",;", true};
// Mistral models write [TOOL_CALLS] [{"name": "f", "arguments": {...}}, ...].
inline constexpr JsonCallStyle kMistralCalls = {"[TOOL_CALLS]", ",[]", false};

// Finds any number of calls in an answer, and the content in front of them and behind them.
class JsonCalls final : public ToolCallParser {
 public:
  JsonCalls(const JsonCallStyle& style, std::vector<std::string> tools)
      : style_(style),
        tools_(std::move(tools)),
        marker_(style.marker),
        content_(style.separators) {}

  void push(std::string_view text, AnswerParts& out) override;
  void finish(AnswerParts& out) override;
  [[nodiscard]] int64_t num_complete() const override { return num_complete_; }

 private:
  enum class State : uint8_t {
    kContent,
    kMarked,           // behind the marker, in front of the first brace
    kCall,             // within the JSON
    kBrokenArguments,  // the JSON is broken, but the call has begun: the rest counts as arguments
  };

  void push(char byte, AnswerParts& out);
  void push_content(char byte, AnswerParts& out);
  void push_call(char byte, AnswerParts& out);
  void begin_call(char byte, AnswerParts& out);
  // Treats the text that was held back as a possible call as content.
  void give_up(AnswerParts& out);
  [[nodiscard]] bool accepts(std::string_view name) const;

  JsonCallStyle style_;
  std::vector<std::string> tools_;
  State state_ = State::kContent;
  MarkerSearch marker_;
  std::optional<CallScanner> scanner_;
  std::string raw_;               // the text of a possible call, as written
  bool is_at_line_start_ = true;  // the line has had nothing but white space so far
  ContentBesideCalls content_;
  int64_t num_complete_ = 0;
};

}  // namespace encore::text
