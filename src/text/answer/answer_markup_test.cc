#include "text/answer/answer_markup.h"

#include <map>

#include <gtest/gtest.h>

#include "base/source_dir.h"
#include "base/testing/temp_dir.h"

namespace encore::text {
namespace {

const std::filesystem::path kSource = ENCORE_SOURCE_DIR;

AnswerMarkup markup_of(const std::string& name) {
  static const Tokenizer tokenizer = Tokenizer::load(kSource / "models" / "stories");
  const auto dir = kSource / "src" / "text" / "testdata" / "chat_templates";
  return find_markup(ChatTemplate::load(dir, dir / (name + ".jinja")), tokenizer);
}

TEST(AnswerMarkup, FindsTheFormatOfCallsInWhatTheTemplateRenders) {
  const std::map<std::string, ToolCallFormat> formats = {
      {"qwen2.5-instruct", ToolCallFormat::kHermes},
      {"Qwen-Qwen2.5-7B-Instruct", ToolCallFormat::kHermes},
      {"Qwen-Qwen3-0.6B", ToolCallFormat::kHermes},
      {"qwen3", ToolCallFormat::kHermes},
      {"qwen3_instruct_2507", ToolCallFormat::kHermes},
      {"Qwen-QwQ-32B", ToolCallFormat::kHermes},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", ToolCallFormat::kHermes},
      {"meta-llama-Llama-3.1-8B-Instruct", ToolCallFormat::kLlama3},
      {"meta-llama-Llama-3.2-3B-Instruct", ToolCallFormat::kLlama3},
      {"mistralai-Mistral-Nemo-Instruct-2407", ToolCallFormat::kMistral},
      {"Qwen3-Coder", ToolCallFormat::kNone},
      {"Mistral-Small-3.2-24B-Instruct-2506", ToolCallFormat::kNone},
      {"chatml", ToolCallFormat::kNone},
      {"GLM-4.6", ToolCallFormat::kNone},
  };
  for (const auto& [name, format] : formats)
    EXPECT_EQ(text::name(markup_of(name).tool_calls), text::name(format)) << name;
}

TEST(AnswerMarkup, FindsWhetherTheModelMarksReasoning) {
  for (const char* name :
       {"qwen3", "Qwen-QwQ-32B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "GLM-4.6"})
    EXPECT_TRUE(markup_of(name).has_reasoning) << name;
  for (const char* name :
       {"qwen2.5-instruct", "meta-llama-Llama-3.1-8B-Instruct", "chatml", "qwen3_instruct_2507"})
    EXPECT_FALSE(markup_of(name).has_reasoning) << name;
}

AnswerMarkup markup_of_source(const std::string& source) {
  static const Tokenizer tokenizer = Tokenizer::load(kSource / "models" / "stories");
  const TempDir dir;
  return find_markup(ChatTemplate::load(dir.path(), dir.write("probed.jinja", source)), tokenizer);
}

TEST(AnswerMarkup, KnowsARoleByWhatTheTemplateMakesOfIt) {
  const std::string known_roles =
      "You help developers. {% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] "
      "%}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_FALSE(markup_of_source(known_roles).knows_developers);
  EXPECT_FALSE(markup_of_source("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
                   .knows_developers);
  EXPECT_TRUE(markup_of_source("{% for m in messages %}{% if m.role == 'developer' %}<dev>{% else "
                               "%}<{{ m.role }}>{% endif %}{{ m.content }}{% endfor %}")
                  .knows_developers);
  EXPECT_TRUE(markup_of("openai-gpt-oss-120b").knows_developers);
  for (const char* name : {"qwen3", "meta-llama-Llama-3.1-8B-Instruct", "chatml"})
    EXPECT_FALSE(markup_of(name).knows_developers) << name;
}

TEST(AnswerMarkup, FindsWhetherTheSystemMaySpeakLate) {
  for (const char* name : {"qwen3", "meta-llama-Llama-3.1-8B-Instruct"})
    EXPECT_TRUE(markup_of(name).takes_late_systems) << name;
  for (const char* name : {"gemma-it", "Qwen3.5-4B"})
    EXPECT_FALSE(markup_of(name).takes_late_systems) << name;
}

TEST(AnswerMarkup, SeesWhereAPromptOpensTheReasoning) {
  EXPECT_TRUE(opens_reasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens_reasoning("What is <think>?<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_FALSE(opens_reasoning(""));
}

TEST(AnswerMarkup, FindsMarkersThatAreSpecialTokens) {
  json::value file = json::parse_file(kSource / "models" / "stories" / "tokenizer.json");
  json::array& added = file.at("added_tokens").as_array();
  for (const char* marker : {"<think>", "<|python_tag|>", "<tool_call>"}) {
    json::value token = added.back();
    token.at("id") = token.at("id").as_int64() + 1;
    token.at("content") = marker;
    token.at("special") = std::string_view(marker) != "<tool_call>";
    added.push_back(std::move(token));
  }
  const TempDir dir;
  dir.write("tokenizer.json", json::to_text(file));
  const auto source = dir.write("plain.jinja", "{{ messages[0].content }}");
  const Tokenizer tokenizer = Tokenizer::load(dir.path());
  const AnswerMarkup markup = find_markup(ChatTemplate::load(dir.path(), source), tokenizer);
  EXPECT_EQ(markup.reasoning_tokens, std::vector{*tokenizer.token_id("<think>")});
  EXPECT_EQ(markup.call_tokens, std::vector{*tokenizer.token_id("<|python_tag|>")});
}

TEST(AnswerMarkup, OfATemplateThatFailsIsNone) {
  const TempDir dir;
  const auto file = dir.write("fails.jinja", "{{ raise_exception('no') }}");
  const Tokenizer tokenizer = Tokenizer::load(kSource / "models" / "stories");
  const AnswerMarkup markup = find_markup(ChatTemplate::load(dir.path(), file), tokenizer);
  EXPECT_EQ(markup.tool_calls, ToolCallFormat::kNone);
  EXPECT_FALSE(markup.has_reasoning || markup.knows_developers || markup.takes_late_systems);
  EXPECT_TRUE(markup.reasoning_tokens.empty() && markup.call_tokens.empty());
}

}  // namespace
}  // namespace encore::text
