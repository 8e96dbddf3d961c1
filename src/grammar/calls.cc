#include "grammar/calls.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/json.h"

namespace encore::grammar {
namespace {

json::object text_element(std::string_view text) {
  return {{"type", "const_string"}, {"value", text}};
}

json::object pattern_element(std::string_view pattern) {
  return {{"type", "regex"}, {"pattern", pattern}};
}

json::object sequence(json::array elements) {
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

// Appends the text to a list of elements of a structural tag. Each special token in it becomes an
// element of its own.
void add_text(std::string_view text, const SpecialTokens& special_tokens, json::array& elements) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto found =
        std::find_if(special_tokens.begin(), special_tokens.end(),
                     [&](const auto& token) { return text.substr(at).starts_with(token.first); });
    if (found == special_tokens.end()) {
      ++at;
      continue;
    }
    if (at > begin) elements.emplace_back(text_element(text.substr(begin, at - begin)));
    elements.emplace_back(json::object{{"type", "token"}, {"token", found->second}});
    begin = at += found->first.size();
  }
  if (begin < text.size()) elements.emplace_back(text_element(text.substr(begin)));
}

// Returns the value of the key "begin" or "end" of a tag, which is one element of a structural tag:
// a text or a token.
json::value boundary(const json::value& element) {
  const json::object& members = element.get_object();
  return members.at("type") == "token" ? element : members.at("value");
}

}  // namespace

std::string structural_tag(const Calls& calls, const SpecialTokens& special_tokens,
                           const std::function<std::string(const std::string&)>& schema_rules) {
  const text::ToolCallSyntax syntax = text::syntax(calls.format);
  json::array tags;
  for (const Function& function : calls.functions) {
    json::array elements;
    add_text(std::string(syntax.before_name) + function.name + std::string(syntax.before_arguments),
             special_tokens, elements);
    elements.emplace_back(
        json::object{{"type", "grammar"}, {"grammar", schema_rules(function.schema)}});
    add_text(syntax.behind_arguments, special_tokens, elements);
    json::value begin = boundary(elements.front());
    json::value end = boundary(elements.back());
    elements.erase(elements.begin());
    elements.pop_back();
    tags.emplace_back(json::object{{"type", "tag"},
                                   {"begin", std::move(begin)},
                                   {"content", sequence(std::move(elements))},
                                   {"end", std::move(end)}});
  }
  // Up to two line breaks may precede the calls, because models leave an empty line behind their
  // reasoning.
  json::array answer{pattern_element(R"(\n{0,2})")};
  if (!syntax.marker.empty()) {
    add_text(syntax.marker, special_tokens, answer);
    answer.emplace_back(pattern_element(" ?"));
  }
  add_text(syntax.opening, special_tokens, answer);
  answer.emplace_back(json::object{{"type", "tags_with_separator"},
                                   {"tags", std::move(tags)},
                                   {"separator", syntax.separator},
                                   {"at_least_one", true},
                                   {"stop_after_first", !calls.may_be_several}});
  add_text(syntax.closing, special_tokens, answer);
  return json::to_text(
      json::object{{"type", "structural_tag"}, {"format", sequence(std::move(answer))}});
}

}  // namespace encore::grammar
