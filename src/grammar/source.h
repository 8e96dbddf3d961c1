// Describes the format that a request demands of its answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/answer/tool_call_parser.h"

namespace encore::grammar {

enum class SourceKind : uint8_t { kJsonObject, kJsonSchema, kRegex, kChoice, kEbnf, kCalls };

// A function that an answer may call, and the JSON schema of its arguments.
struct Function {
  std::string name;
  std::string schema;

  friend bool operator==(const Function&, const Function&) = default;
};

// An answer that is a call, or several in a row.
struct Calls {
  text::ToolCallFormat format = text::ToolCallFormat::kNone;
  std::vector<Function> functions;
  bool may_be_several = true;

  friend bool operator==(const Calls&, const Calls&) = default;
};

struct Source {
  SourceKind kind = SourceKind::kJsonObject;
  // The schema, the regular expression, or the grammar, whose first rule is `root`.
  std::string text;
  std::vector<std::string> choices;  // of kChoice: one of these, as it is
  Calls calls;                       // of kCalls
  // For schemas: an object has only the properties, and an array only the items, that the schema
  // names.
  bool is_closed = true;

  friend bool operator==(const Source&, const Source&) = default;
  [[nodiscard]] int64_t num_bytes() const;
};

// Bounds that keep the work of a compilation small, whoever wrote the source.
struct SourceLimits {
  int64_t max_bytes = 65536;
  int64_t max_regex_bytes = 4096;  // a regular expression, those within schemas too
  int64_t max_nesting = 64;        // of parentheses; JSON has a limit of its own
  int64_t max_open_repeats = 128;  // signs such as ? * + in one regular expression
  int64_t max_repeats = 2000;      // of a character or an item: {m,n}, maxItems and the like
  int64_t max_choices = 2048;      // of kChoice, and values of an enum
};

// Says why `source` is not to be compiled, with the place in a schema; nothing if it is within the
// limits. Time: linear.
std::optional<std::string> problem(const Source& source, const SourceLimits& limits = {});

// A grammar for exactly these texts.
std::string choice_grammar(const std::vector<std::string>& choices);

}  // namespace encore::grammar
