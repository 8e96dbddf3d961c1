#include "cli/prompts.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"

namespace encore::cli {
namespace {

std::string refusal(std::string_view text) {
  return message_of(ErrorKind::kUsage, [&] { (void)parse_prompts(text, {}, "prompts"); });
}

TEST(Prompts, AreLinesOfTextOrObjects) {
  PromptDefaults defaults;
  defaults.max_tokens = 7;
  defaults.stop = {"end"};
  const auto prompts = parse_prompts(
      "\xEF\xBB\xBFOnce upon\r\n\n"
      R"({"id": "a", "prompt": "A fox", "n": 2, "temperature": 0.5, "seed": -3, "stop": "."})"
      "\n"
      R"({"prompt_ids": [1, 2], "max_tokens": 3, "stop": ["x", "y"], "ignore_eos": true})",
      defaults, "prompts");
  ASSERT_EQ(prompts.size(), 3U);
  EXPECT_EQ(prompts[0].text, "Once upon");
  EXPECT_EQ(prompts[0].max_tokens, 7);
  EXPECT_EQ(prompts[0].stop, std::vector<std::string>{"end"});
  EXPECT_EQ(prompts[1].line, 3);
  EXPECT_EQ(prompts[1].id, "a");
  EXPECT_EQ(prompts[1].n, 2);
  EXPECT_EQ(prompts[1].sampling.temperature, 0.5F);
  EXPECT_EQ(prompts[1].sampling.seed, -3);
  EXPECT_EQ(prompts[1].stop, std::vector<std::string>{"."});
  EXPECT_EQ(prompts[2].ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(prompts[2].max_tokens, 3);
  EXPECT_EQ(prompts[2].stop, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(prompts[2].ignore_eos);
}

TEST(Prompts, SayWhatIsWrongAndWhere) {
  const std::pair<const char*, const char*> rows[] = {
      {"", "prompts: there is no prompt"},
      {" \n\n", "prompts: there is no prompt"},
      {"a\n{\"prompt\": 1}", "prompts:2: key 'prompt'"},
      {"{\"prompt\": \"a\"", "prompts:1: "},
      {"{}", "prompts:1: give prompt or prompt_ids"},
      {R"({"prompt": "a", "prompt_ids": [1]})", "prompts:1: give prompt or prompt_ids"},
      {R"({"prompt": ""})", "prompts:1: the prompt is empty"},
      {R"({"prompt_ids": [-1]})", "prompts:1: prompt_ids is a list of token ids"},
      {R"({"prompt": "a", "tempreture": 1})", "prompts:1: no key 'tempreture' is known; there are"},
      {R"({"prompt": "a", "n": 0})", "prompts:1: n is 0; it is 1 to 1024"},
      {R"({"prompt": "a", "max_tokens": -5})", "prompts:1: max_tokens is -5"},
      {R"({"prompt": "a", "temperature": -1})", "prompts:1: temperature"},
      {R"({"prompt": "a", "stop": [1]})", "prompts:1: stop is a string or a list of strings"},
  };
  for (const auto& [text, message] : rows)
    EXPECT_NE(refusal(text).find(message), std::string::npos) << text << "\n" << refusal(text);
}

}  // namespace
}  // namespace encore::cli
