// The parts of a model's answer: its reasoning, its content and its calls of tools.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace encore::text {

// A piece of an answer. A list of pieces is in the order in which the model wrote them.
struct AnswerPart {
  enum class Kind : uint8_t {
    kReasoning,  // more text of the reasoning
    kContent,    // more text of the content
    kCall,       // a call begins; the text is the tool's name
    kArguments,  // more text of the arguments of the call that began last
  };
  Kind kind = Kind::kContent;
  std::string text;

  bool operator==(const AnswerPart&) const = default;
};
using AnswerParts = std::vector<AnswerPart>;

// Adds text to the last part where that part is of the same kind, and as a new part otherwise. A
// call always begins a new part. Empty text adds nothing.
inline void append(AnswerParts& parts, AnswerPart::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const bool joins = kind != AnswerPart::Kind::kCall && !parts.empty() && parts.back().kind == kind;
  if (!joins) parts.push_back({kind, ""});
  parts.back().text += text;
}

}  // namespace encore::text
