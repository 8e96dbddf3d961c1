#include "grammar/calls.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace encore::grammar {
namespace {

json::value tag_of(text::ToolCallFormat format, const SpecialTokens& special_tokens) {
  const Calls calls{.format = format, .functions = {{"f", "{}"}}, .may_be_several = false};
  const auto rules = [](const std::string& schema) { return "rules of " + schema; };
  return json::parse(structural_tag(calls, special_tokens, rules), "tag").at("format");
}

TEST(StructuralTag, PutsTheRulesOfArgumentsBetweenTextAsTheFormatHasIt) {
  const json::value tags = tag_of(text::ToolCallFormat::kLlama3, {}).at("elements").at(1);
  EXPECT_EQ(tags.at("stop_after_first"), true);
  EXPECT_EQ(tags.at("tags"), json::parse(R"([{"type": "tag",
      "begin": "{\"name\": \"f\", \"parameters\": ",
      "content": {"type": "sequence", "elements": [{"type": "grammar", "grammar": "rules of {}"}]},
      "end": "}"}])",
                                         "wanted"));
}

TEST(StructuralTag, NamesSpecialTokensByTheirIds) {
  const json::value format =
      tag_of(text::ToolCallFormat::kHermes, {{"<tool_call>", 7}, {"</tool_call>", 8}});
  EXPECT_EQ(format.at("elements").at(1).at("tags").at(0), json::parse(R"({"type": "tag",
      "begin": {"type": "token", "token": 7},
      "content": {"type": "sequence", "elements": [
          {"type": "const_string", "value": "\n{\"name\": \"f\", \"arguments\": "},
          {"type": "grammar", "grammar": "rules of {}"},
          {"type": "const_string", "value": "}\n"}]},
      "end": {"type": "token", "token": 8}})",
                                                                      "wanted"));
}

}  // namespace
}  // namespace encore::grammar
