#include "grammar/grammar.h"

#include <algorithm>

#include "base/json.h"
#include "base/source_dir.h"
#include "base/temp_dir.h"
#include "grammar/testing/sampled_answer.h"
#include "grammar/testing/validity.h"
#include "text/answer/answer_parser.h"

namespace encore::grammar {
namespace {

using testing::allowed;
using testing::Answer;
using testing::compiled;
using testing::is_valid;
using testing::matches;
using testing::Model;
using testing::OfAModel;
using testing::sample;

INSTANTIATE_TEST_SUITE_P(Tokenizers, OfAModel, testing::tokenizers(), testing::tokenizer_name);

TEST_P(OfAModel, LetsNothingButAChoiceCome) {
  const std::vector<std::string> choices = {"yes", "yes, but", "no\n\"never\""};
  const Grammar grammar = compiled(model, {.kind = SourceKind::kChoice, .choices = choices});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Answer answer = sample(model, grammar, seed, 100);
    EXPECT_TRUE(answer.is_whole);
    EXPECT_NE(std::find(choices.begin(), choices.end(), answer.text), choices.end()) << answer.text;
  }
}

TEST_P(OfAModel, FollowsARegularExpressionAndAGrammar) {
  const Grammar regex =
      compiled(model, {.kind = SourceKind::kRegex, .text = "[ab]{3}(c|[0-9]{2})é"});
  const Grammar ebnf =
      compiled(model, {.kind = SourceKind::kEbnf, .text = R"x(root ::= "(" root ")" | [x-z])x"});
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Answer matched = sample(model, regex, seed, 100);
    EXPECT_TRUE(matches(matched.text, "[ab]{3}(c|[0-9]{2})é")) << matched.text;
    const Answer nested = sample(model, ebnf, seed, 200);
    if (!nested.is_whole) continue;
    EXPECT_EQ(std::count(nested.text.begin(), nested.text.end(), '('),
              std::count(nested.text.begin(), nested.text.end(), ')'));
  }
}

// The stories model with these as special tokens.
Model with_special_tokens(const std::vector<std::string>& texts) {
  json::value file =
      json::parse_file(std::string(ENCORE_SOURCE_DIR) + "/models/stories/tokenizer.json");
  json::array& added = file.at("added_tokens").as_array();
  json::value token = added.back();
  int32_t id = text::Tokenizer::load(ENCORE_SOURCE_DIR "/models/stories").vocab_size();
  for (const std::string& text : texts) {
    token.at("id") = id++;
    token.at("content") = text;
    added.push_back(token);
  }
  const TempDir dir;
  dir.write("tokenizer.json", json::to_text(file));
  return Model(text::Tokenizer::load(dir.path()));
}

// Random answers to `calls`, read as the server reads them.
void expect_calls(const Model& model, const Calls& calls) {
  const Grammar grammar = compiled(model, {.kind = SourceKind::kCalls, .calls = calls});
  std::vector<std::string> names;
  for (const Function& function : calls.functions)
    names.push_back(function.name);
  int64_t num_whole = 0;
  int64_t most = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Answer answer = sample(model, grammar, seed, 600);
    if (!answer.is_whole) continue;
    ++num_whole;
    text::AnswerParser parser({.tool_calls = calls.format, .tools = names});
    text::AnswerParts parts = parser.push(answer.text);
    for (text::AnswerPart& part : parser.finish())
      parts.push_back(std::move(part));
    ASSERT_EQ(parts.size() % 2, 0U) << answer.text;
    for (size_t i = 0; i < parts.size(); i += 2) {
      ASSERT_EQ(parts[i].kind, text::AnswerPart::Kind::kCall) << answer.text;
      ASSERT_EQ(parts[i + 1].kind, text::AnswerPart::Kind::kArguments) << answer.text;
      const auto function =
          std::find_if(calls.functions.begin(), calls.functions.end(),
                       [&](const Function& f) { return f.name == parts[i].text; });
      ASSERT_NE(function, calls.functions.end()) << answer.text;
      EXPECT_TRUE(is_valid(json::parse(parts[i + 1].text, "arguments"),
                           json::parse(function->schema, "schema")))
          << answer.text;
    }
    most = std::max(most, std::ssize(parts) / 2);
  }
  EXPECT_GT(num_whole, 10);
  EXPECT_EQ(most > 1, calls.may_be_several);
}

TEST(Grammar, HoldsAnswersToCallsInEachFormat) {
  const Calls calls{
      .functions = {
          {"rain", R"({"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]},
                       "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                       "required": ["city"]})"},
          {"now", R"({"type": "object", "properties": {}})"}}};
  const Model plain("/models/stories");
  const Model special = with_special_tokens({"[TOOL_CALLS]", "<tool_call>", "</tool_call>"});
  for (const auto format : {text::ToolCallFormat::kHermes, text::ToolCallFormat::kLlama3,
                            text::ToolCallFormat::kMistral}) {
    for (const bool may_be_several : {true, false}) {
      for (const Model* model : {&plain, &special}) {
        SCOPED_TRACE(text::name(format));
        Calls asked = calls;
        asked.format = format;
        asked.may_be_several = may_be_several;
        expect_calls(*model, asked);
      }
    }
  }
}

TEST(Grammar, LetsAMarkerComeAsItsSpecialTokenOnly) {
  const Model model = with_special_tokens({"[TOOL_CALLS]"});
  const Calls calls{.format = text::ToolCallFormat::kMistral,
                    .functions = {{"now", R"({"type": "object", "properties": {}})"}}};
  Matcher matcher = compiled(model, {.kind = SourceKind::kCalls, .calls = calls}).matcher();
  const int32_t marker = *model.tokenizer.token_id("[TOOL_CALLS]");
  for (const int32_t token : allowed(model, matcher)) {
    EXPECT_TRUE(token == marker || model.tokenizer.token_bytes(token).starts_with("\n"))
        << model.tokenizer.token_bytes(token);
  }
  EXPECT_TRUE(matcher.accept(marker));
}

TEST(Grammar, LetsNoSpecialTokenComeAsText) {
  const Model model = with_special_tokens({"<|mark|>"});
  const Source sources[] = {
      {.kind = SourceKind::kRegex, .text = ".{0,9}"},
      {.kind = SourceKind::kRegex, .text = "[^a]*"},
      {.kind = SourceKind::kRegex, .text = R"([\xff].*)"},
      {.kind = SourceKind::kEbnf, .text = R"(root ::= [^b]* "<|mark|>")"},
      {.kind = SourceKind::kEbnf, .text = R"(root ::= "\xff" [\0-\U0010ffff]*)"},
      {.kind = SourceKind::kJsonSchema, .text = R"({"type": "string"})"}};
  for (const Source& source : sources) {
    Matcher matcher = compiled(model, source).matcher();
    for (int i = 0; i < 3; ++i) {
      int32_t next = -1;
      for (const int32_t token : allowed(model, matcher)) {
        EXPECT_FALSE(model.tokenizer.is_special(token) && token != model.end) << source.text;
        if (next < 0 && token != model.end) next = token;
      }
      if (next < 0 || !matcher.accept(next)) break;
    }
  }
}

TEST(Grammar, EndsOnlyWhereTheAnswerIsComplete) {
  const Model model("/models/stories");
  Matcher matcher = compiled(model, {.kind = SourceKind::kChoice, .choices = {"ab"}}).matcher();
  EXPECT_FALSE(matcher.accept(model.end));
  const std::vector<int32_t> ids = model.tokenizer.encode("ab", false);
  for (const int32_t id : ids) {
    EXPECT_FALSE(matcher.is_complete());
    if (model.tokenizer.token_bytes(id) == " ") continue;
    ASSERT_TRUE(matcher.accept(id)) << model.tokenizer.token_bytes(id);
  }
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_EQ(allowed(model, matcher), std::vector<int32_t>{model.end});
  EXPECT_TRUE(matcher.accept(model.end));
  EXPECT_TRUE(matcher.has_ended());
  matcher.rollback(1);
  EXPECT_FALSE(matcher.has_ended());
  EXPECT_EQ(allowed(model, matcher), std::vector<int32_t>{model.end});
}

TEST(Grammar, ClosesAnObjectOnlyWhereItIsAskedTo) {
  const Model model("/models/stories");
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "null"}}})";
  const auto takes_another = [&](bool is_closed) {
    Matcher matcher =
        compiled(model, {.kind = SourceKind::kJsonSchema, .text = schema, .is_closed = is_closed})
            .matcher();
    bool is_taken = true;
    for (const char c : std::string_view("{\"b\":")) {
      bool found = false;
      for (const int32_t token : allowed(model, matcher)) {
        if (found || model.tokenizer.token_bytes(token) != std::string(1, c)) continue;
        found = matcher.accept(token);
      }
      is_taken = is_taken && found;
    }
    return is_taken;
  };
  EXPECT_FALSE(takes_another(true));
  EXPECT_TRUE(takes_another(false));
}

}  // namespace
}  // namespace encore::grammar
