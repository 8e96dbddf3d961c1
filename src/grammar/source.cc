#include "grammar/source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <string_view>

#include "base/json.h"
#include "grammar/ebnf.h"

namespace encore::grammar {
namespace {

using Problem = std::optional<std::string>;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Returns the largest number in a repetition such as {2,30} that begins at `text[at]`. Returns 0 if
// the brace begins no repetition.
int64_t largest_repeat(std::string_view text, size_t at) {
  int64_t largest = 0;
  for (++at; at < text.size() && text[at] != '}'; ++at) {
    if (!is_digit(text[at])) {
      if (text[at] != ',' && text[at] != ' ') return 0;
      continue;
    }
    int64_t count = 0;
    const auto [end, error] = std::from_chars(&text[at], text.data() + text.size(), count);
    largest = std::max(largest, error == std::errc() ? count : INT64_MAX);
    at = static_cast<size_t>(end - text.data()) - 1;
  }
  return largest;
}

// Checks the nesting of parentheses and the repetitions of a regular expression or a grammar.
// Counts in nested repetitions multiply, so the product of all counts in the text must stay within
// limits.max_repeats.
Problem pattern_problem(std::string_view text, const SourceLimits& limits) {
  int64_t depth = 0;
  int64_t repeats = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '(') {
      if (++depth > limits.max_nesting)
        return fmt::format("parentheses are nested more than {} deep", limits.max_nesting);
    } else if (text[i] == ')') {
      depth = std::max<int64_t>(0, depth - 1);
    } else if (text[i] == '{') {
      const int64_t count = std::max<int64_t>(1, largest_repeat(text, i));
      if (count > limits.max_repeats / repeats) {
        return fmt::format("repetitions multiply to more than {}: write * or +, or smaller counts",
                           limits.max_repeats);
      }
      repeats *= count;
    }
  }
  return std::nullopt;
}

// Returns the number of characters that a regular expression would have if each repetition were
// written out.
int64_t written_out_size(std::string_view text) {
  constexpr int64_t kEnough = int64_t{1} << 30U;
  std::vector<int64_t> sizes{0};  // written-out sizes of the open groups
  int64_t last = 0;               // written-out size of the item that a repetition would repeat
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') {
      sizes.push_back(0);
      continue;
    }
    if (text[i] == ')' && sizes.size() > 1) {
      last = sizes.back();
      sizes.pop_back();
    } else if (const int64_t count = text[i] == '{' ? largest_repeat(text, i) : 0; count > 0) {
      const int64_t size = std::min(last, kEnough) * std::min(count, kEnough);
      sizes.back() = std::min(sizes.back() - last + size, kEnough);
      last = size;
      i = std::min(text.find('}', i), text.size());
      continue;
    } else {
      if (text[i] == '[') {
        while (i < text.size() && text[i] != ']')
          i += text[i] == '\\' ? 2 : 1;
      } else if (text[i] == '\\') {
        ++i;
      }
      last = 1;
    }
    sizes.back() = std::min(sizes.back() + last, kEnough);
  }
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

Problem schema_pattern_problem(std::string_view text, const SourceLimits& limits) {
  if (std::ssize(text) > limits.max_regex_bytes)
    return fmt::format("a regular expression has at most {} bytes, not {}", limits.max_regex_bytes,
                       text.size());
  if (const int64_t size = written_out_size(text); size > limits.max_regex_bytes) {
    return fmt::format(
        "its repetitions stand for {} characters, of at most {}: write * or +, or smaller counts",
        size, limits.max_regex_bytes);
  }
  return std::nullopt;
}

Problem regex_problem(std::string_view text, const SourceLimits& limits) {
  if (std::ssize(text) > limits.max_regex_bytes) {
    return fmt::format("a regular expression has at most {} bytes, not {}", limits.max_regex_bytes,
                       text.size());
  }
  // The signs ? * + within character classes are counted too, although they repeat nothing there.
  // The limit need not be exact.
  const auto num_open = std::count_if(text.begin(), text.end(),
                                      [](char c) { return c == '?' || c == '*' || c == '+'; });
  if (num_open > limits.max_open_repeats)
    return fmt::format("a regular expression has at most {} of ? * +, not {}",
                       limits.max_open_repeats, num_open);
  return pattern_problem(text, limits);
}

// Checks a schema or a part of it against the limits. `path` is the part's place in the schema.
class SchemaCheck {
 public:
  explicit SchemaCheck(const SourceLimits& limits) : limits_(limits) {}

  // The depth of this recursion is bounded, because json::parse bounds the nesting of values.
  Problem check(const json::value& value, const std::string& path) {
    if (const auto* array = value.if_array()) {
      int64_t index = 0;
      for (const json::value& item : *array) {
        if (auto problem = check(item, fmt::format("{}[{}]", path, index++))) return problem;
      }
    } else if (const auto* object = value.if_object()) {
      for (const auto& [key, member] : *object) {
        const std::string_view name(key.data(), key.size());
        const std::string place = fmt::format("{}.{}", path, name);
        if (auto problem = keyword_problem(name, member))
          return fmt::format("{}: {}", place, *problem);
        if (auto problem = check(member, place)) return problem;
      }
    }
    return std::nullopt;
  }

 private:
  Problem keyword_problem(std::string_view key, const json::value& value) const {
    static constexpr std::array<std::string_view, 6> kCounts = {
        "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"};
    if (value.is_number() && std::find(kCounts.begin(), kCounts.end(), key) != kCounts.end() &&
        !(value.to_number<double>() <= static_cast<double>(limits_.max_repeats)))
      return fmt::format("is at most {}; leave it out where any number will do",
                         limits_.max_repeats);
    if (key == "pattern" && value.is_string())
      return schema_pattern_problem(value.get_string(), limits_);
    if (key == "enum" && value.is_array() && std::ssize(value.get_array()) > limits_.max_choices) {
      return fmt::format("has at most {} values, not {}", limits_.max_choices,
                         value.get_array().size());
    }
    return std::nullopt;
  }

  const SourceLimits& limits_;
};

Problem schema_problem(const std::string& text, const SourceLimits& limits) {
  json::value schema;
  try {
    schema = json::parse(text, "schema");
  } catch (const Error& error) {
    return error.what();
  }
  if (!schema.is_object() && !schema.is_bool()) return "schema: it is an object, or true or false";
  return SchemaCheck(limits).check(schema, "schema");
}

Problem choice_problem(const std::vector<std::string>& choices, const SourceLimits& limits) {
  if (choices.empty()) return "there is nothing to choose from";
  if (std::ssize(choices) > limits.max_choices)
    return fmt::format("there are at most {} choices, not {}", limits.max_choices, choices.size());
  const bool has_empty = std::any_of(choices.begin(), choices.end(),
                                     [](const std::string& choice) { return choice.empty(); });
  return has_empty ? Problem("a choice is empty") : std::nullopt;
}

Problem calls_problem(const Calls& calls, const SourceLimits& limits) {
  if (calls.functions.empty()) return "there is nothing to call";
  for (const Function& function : calls.functions) {
    if (auto problem = schema_problem(function.schema, limits))
      return fmt::format("{}: {}", function.name, *problem);
  }
  return std::nullopt;
}

}  // namespace

int64_t Source::num_bytes() const {
  int64_t bytes = std::ssize(text);
  for (const std::string& choice : choices)
    bytes += std::ssize(choice);
  for (const Function& function : calls.functions)
    bytes += std::ssize(function.name) + std::ssize(function.schema);
  return bytes;
}

std::optional<std::string> problem(const Source& source, const SourceLimits& limits) {
  if (source.num_bytes() > limits.max_bytes)
    return fmt::format("it has at most {} bytes, not {}", limits.max_bytes, source.num_bytes());
  switch (source.kind) {
    case SourceKind::kJsonObject:
      return std::nullopt;
    case SourceKind::kJsonSchema:
      return schema_problem(source.text, limits);
    case SourceKind::kRegex:
      return regex_problem(source.text, limits);
    case SourceKind::kChoice:
      return choice_problem(source.choices, limits);
    case SourceKind::kEbnf:
      return pattern_problem(source.text, limits);
    case SourceKind::kCalls:
      return calls_problem(source.calls, limits);
  }
  return std::nullopt;
}

std::string choice_grammar(const std::vector<std::string>& choices) {
  std::string grammar = "root ::= ";
  for (size_t i = 0; i < choices.size(); ++i)
    grammar += (i == 0 ? "" : " | ") + ebnf_literal(choices[i]);
  return grammar;
}

}  // namespace encore::grammar
