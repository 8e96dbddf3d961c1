// Cuts the source of a template into text and the tokens of its tags.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace encore::text::jinja {

enum class TokenKind : uint8_t {
  kData,        // text outside of tags
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // the text of data, a name or an operator, or the content of a string
  Int integer = 0;
  double number = 0;
};

// Returns the tokens of a template; the last is of kEnd. It removes whitespace around tags by the
// rules of trim_blocks, lstrip_blocks, and the `-` or `+` of a tag. Comments and raw blocks are
// resolved. `where` names the source in messages. REQUIRES: valid UTF-8. Errors: kModel, naming the
// line.
std::vector<Token> tokenize(std::string_view source, const std::string& where);

// Throws an Error of kModel that names the source and the line.
[[noreturn]] void fail_at(const std::string& where, int line, const std::string& message);

}  // namespace encore::text::jinja
