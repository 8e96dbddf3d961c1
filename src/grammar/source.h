// Describes the format that a request demands of its answer: a schema, an expression, a list of
// texts, a grammar, or tool calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/answer/tool_call_parser.h"

namespace encore::grammar {

enum class SourceKind : uint8_t { kJsonObject, kJsonSchema, kRegex, kChoice, kEbnf, kCalls };

// A function that an answer may call. `schema` is the JSON schema of its arguments.
struct Function {
  std::string name;
  std::string schema;

  friend bool operator==(const Function&, const Function&) = default;
};

// Answers that consist of one tool call, or of several in a row.
struct Calls {
  text::ToolCallFormat format = text::ToolCallFormat::kNone;
  std::vector<Function> functions;
  bool may_be_several = true;

  friend bool operator==(const Calls&, const Calls&) = default;
};

struct Source {
  SourceKind kind = SourceKind::kJsonObject;
  // The text of the schema, of the regular expression, or of the grammar, whose first rule is
  // `root`.
  std::string text;
  std::vector<std::string> choices;  // for kChoice: the answer is exactly one of these
  Calls calls;                       // for kCalls
  // For kJsonSchema and for the arguments of kCalls: where a schema says nothing about other
  // properties or items, objects and arrays have only those that it names.
  bool is_closed = true;

  friend bool operator==(const Source&, const Source&) = default;
  [[nodiscard]] int64_t num_bytes() const;
};

// Limits on a source. They bound the time that compiling an untrusted source may take.
struct SourceLimits {
  int64_t max_bytes = 65536;
  int64_t max_regex_bytes = 4096;  // for each regular expression, also within schemas
  int64_t max_nesting = 64;        // levels of parentheses; the JSON parser has its own limit
  int64_t max_open_repeats = 128;  // number of ? * + in one regular expression
  int64_t max_repeats = 2000;      // the largest number in {m,n}, maxItems and similar bounds
  int64_t max_choices = 2048;      // the most choices of kChoice, and the most values of an enum
};

// Returns why `source` exceeds the limits, with the place in a schema. Returns nothing if it is
// within the limits. Time: linear in the size of the source.
std::optional<std::string> problem(const Source& source, const SourceLimits& limits = {});

// Returns the text of a grammar in extended Backus-Naur form that allows exactly these texts.
std::string choice_grammar(const std::vector<std::string>& choices);

}  // namespace encore::grammar
