#include "grammar/ebnf.h"

#include <array>
#include <vector>

#include <fmt/format.h>

namespace encore::grammar {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
// A lookahead behind the end of a string. With it, xgrammar can decide when it compiles a grammar,
// rather than for each mask, whether a token that begins with the closing quotation mark is
// allowed.
constexpr std::string_view kBehindString = R"( (=([ \n\r\t]{0,16} [,}\]:])))";

std::string class_code(CodePoint code) {
  const bool is_plain =
      (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
  if (is_plain) return std::string(1, static_cast<char>(code));
  return code <= 0xffff ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

// Returns a character class of the hexadecimal digits from `first` to `last` in both cases.
std::string hex_class(uint32_t first, uint32_t last) {
  std::string text = "[";
  for (uint32_t digit = first; digit <= last; ++digit) {
    text += kHexDigits[digit];
    if (digit >= 10) text += static_cast<char>(kHexDigits[digit] - 'a' + 'A');
  }
  return text + "]";
}

std::string any_hex(int num_digits) {
  std::string text;
  for (int i = 0; i < num_digits; ++i)
    text += (i == 0 ? "" : " ") + hex_class(0, 15);
  return text;
}

// Adds sequences of character classes to a list. Each consists of the text `before` and classes
// that match numbers from `first` to `last`, written with `num_digits` hexadecimal digits.
void add_hex_range(uint32_t first, uint32_t last, int num_digits, const std::string& before,
                   std::vector<std::string>& sequences) {
  const std::string space = before.empty() ? "" : " ";
  if (num_digits == 0) {
    sequences.push_back(before);
    return;
  }
  const uint32_t unit = 1U << (4U * (num_digits - 1));
  if (first % unit == 0 && (last + 1) % unit == 0) {
    const std::string rest = any_hex(num_digits - 1);
    sequences.push_back(before + space + hex_class(first / unit, last / unit) +
                        (rest.empty() ? "" : " " + rest));
    return;
  }
  const uint32_t low = first / unit;
  const uint32_t high = last / unit;
  const auto one = [&](uint32_t digit, uint32_t from, uint32_t to) {
    add_hex_range(from % unit, to % unit, num_digits - 1, before + space + hex_class(digit, digit),
                  sequences);
  };
  if (low == high) return one(low, first, last);
  uint32_t whole_from = low;
  uint32_t whole_to = high;
  if (first % unit != 0) {
    one(low, first, (low + 1) * unit - 1);
    ++whole_from;
  }
  if ((last + 1) % unit != 0) {
    one(high, high * unit, last);
    --whole_to;
  }
  if (whole_from <= whole_to && whole_from <= high) {
    const std::string rest = any_hex(num_digits - 1);
    sequences.push_back(before + space + hex_class(whole_from, whole_to) +
                        (rest.empty() ? "" : " " + rest));
  }
}

// Adds sequences that match the escapes of the characters from `first` to `last`, which lie above
// 0xffff, as surrogate pairs.
void add_pairs(CodePoint first, CodePoint last, std::vector<std::string>& sequences) {
  const auto high = [](CodePoint code) { return 0xd800 + ((code - 0x10000) >> 10U); };
  const auto low = [](CodePoint code) { return 0xdc00 + ((code - 0x10000) & 0x3ffU); };
  const auto add = [&](CodePoint high_from, CodePoint high_to, CodePoint low_from,
                       CodePoint low_to) {
    std::vector<std::string> highs;
    std::vector<std::string> lows;
    add_hex_range(high_from, high_to, 4, "", highs);
    add_hex_range(low_from, low_to, 4, "", lows);
    for (const std::string& h : highs)
      for (const std::string& l : lows)
        sequences.push_back(h + R"( "\\u" )" + l);
  };
  CodePoint from = high(first);
  CodePoint to = high(last);
  if (from == to) return add(from, from, low(first), low(last));
  if (low(first) != 0xdc00) add(from++, high(first), low(first), 0xdfff);
  if (low(last) != 0xdfff) add(to--, high(last), 0xdc00, low(last));
  if (from <= to) add(from, to, 0xdc00, 0xdfff);
}

// Returns the ways in which rules can match a character of the set within a JSON string: as itself,
// as a short escape such as \", and as \uXXXX.
std::vector<std::string> json_spellings(const CodeSet& set) {
  static const CodeSet kRaw = complement(code_set({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}));
  std::vector<std::string> spellings;
  if (const CodeSet raw = intersection(set, kRaw); !raw.empty())
    spellings.push_back(ebnf_class(raw));
  static constexpr std::array<std::pair<char, char>, 8> kShort{{{'"', '"'},
                                                                {'\\', '\\'},
                                                                {'/', '/'},
                                                                {'\b', 'b'},
                                                                {'\f', 'f'},
                                                                {'\n', 'n'},
                                                                {'\r', 'r'},
                                                                {'\t', 't'}}};
  std::vector<CodeRange> letters;
  for (const auto& [code, letter] : kShort) {
    const auto wanted = static_cast<CodePoint>(code);
    if (!intersection(set, {{wanted, wanted}}).empty())
      letters.push_back({static_cast<CodePoint>(letter), static_cast<CodePoint>(letter)});
  }
  if (!letters.empty()) spellings.push_back(R"("\\" )" + ebnf_class(code_set(std::move(letters))));
  std::vector<std::string> sequences;
  for (const CodeRange& range : set) {
    if (range.first <= 0xffff)
      add_hex_range(range.first, std::min<CodePoint>(range.last, 0xffff), 4, "", sequences);
    if (range.last > 0xffff)
      add_pairs(std::max<CodePoint>(range.first, 0x10000), range.last, sequences);
  }
  for (const std::string& sequence : sequences)
    spellings.push_back(R"("\\u" )" + sequence);
  return spellings;
}

// Returns pairs of a state that the edges of `state` lead to, and the set of the characters that
// lead there.
std::vector<std::pair<int32_t, CodeSet>> sets_of(const Automaton::State& state) {
  std::vector<std::pair<int32_t, CodeSet>> sets;
  for (const Automaton::Edge& edge : state.edges) {
    auto found = std::find_if(sets.begin(), sets.end(),
                              [&](const auto& set) { return set.first == edge.target; });
    if (found == sets.end()) found = sets.insert(sets.end(), {edge.target, {}});
    found->second.push_back(edge.range);
  }
  return sets;
}

void add_option(std::string& rule, std::string_view option) {
  if (!rule.ends_with("::= ")) rule += " | ";
  rule += option;
}

}  // namespace

std::string ebnf_literal(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\r':
        quoted += "\\r";
        break;
      case '\t':
        quoted += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          quoted += c;
        }
    }
  }
  return quoted + '"';
}

std::string ebnf_class(const CodeSet& set) {
  std::string text = "[";
  for (const CodeRange& range : set) {
    text += class_code(range.first);
    if (range.last == range.first) continue;
    if (range.last > range.first + 1) text += '-';
    text += class_code(range.last);
  }
  return text + "]";
}

std::string text_rules(const Automaton& automaton, const std::string& name) {
  std::string rules;
  for (size_t i = 0; i < automaton.states().size(); ++i) {
    std::string rule = fmt::format("{}{} ::= ", name, i);
    if (automaton.states()[i].accepts) add_option(rule, "\"\"");
    for (const auto& [target, set] : sets_of(automaton.states()[i]))
      add_option(rule, fmt::format("{} {}{}", ebnf_class(set), name, target));
    rules += rule + "\n";
  }
  return rules;
}

std::string json_string_rules(const Automaton& automaton, const std::string& name) {
  std::string rules;
  for (size_t i = 0; i < automaton.states().size(); ++i) {
    std::string rule = fmt::format("{}{} ::= ", name, i);
    if (automaton.states()[i].accepts) add_option(rule, R"("\"")");
    for (const auto& [target, set] : sets_of(automaton.states()[i]))
      for (const std::string& spelling : json_spellings(set))
        add_option(rule, fmt::format("{} {}{}", spelling, name, target));
    rules += rule + std::string(kBehindString) + "\n";
  }
  return rules;
}

}  // namespace encore::grammar
