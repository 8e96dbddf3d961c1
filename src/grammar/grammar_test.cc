#include "grammar/grammar.h"

#include <algorithm>
#include <cstdlib>

#include "base/json.h"
#include "base/source_dir.h"
#include "base/testing/temp_dir.h"
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

// Returns the stories model with these texts as additional special tokens.
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

// Samples random answers to `calls`, and expects that the server's parser of answers reads each as
// calls of functions in `calls`.
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

// Returns the text of a grammar that can split a text in very many ways. It has the rules r1 to rN,
// where N is `num_rules` and rule i is a sequence of i parts of any length.
std::string ambiguous_rules(int num_rules) {
  std::string all = "root ::= (r1";
  std::string rules;
  for (int i = 1; i <= num_rules; ++i) {
    if (i > 1) all += fmt::format(" | r{}", i);
    rules += fmt::format("r{} ::=", i);
    for (int part = 0; part < i; ++part)
      rules += " [a-z ]+";
    rules += "\n";
  }
  return all + ")*\n" + rules;
}

// Returns sources that allow any number of the letter a. They compile quickly, but matching them
// takes much work.
std::vector<Source> hostile_sources() {
  return {
      {.kind = SourceKind::kEbnf, .text = ambiguous_rules(8)},
      {.kind = SourceKind::kEbnf, .text = "root ::= root root | \"a\" | [a-z]"},
      {.kind = SourceKind::kEbnf, .text = "root ::= x*\nx ::= y | y x\ny ::= [a-z]+ | y y | x x"},
      {.kind = SourceKind::kRegex, .text = "((a|aa)+(a|aaa)+)*"}};
}

int32_t id_of(const Model& model, std::string_view bytes) {
  for (int32_t token = 0; token < model.tokenizer.vocab_size(); ++token) {
    if (!model.tokenizer.is_special(token) && model.tokenizer.token_bytes(token) == bytes)
      return token;
  }
  return -1;
}

TEST(Grammar, GivesUpATokenThatIsTooMuchWork) {
  const Model model("/models/stories");
  Matcher matcher = compiled(model, hostile_sources()[0]).matcher();
  int64_t num_taken = 0;
  while (num_taken < 45 && matcher.accept(id_of(model, "a")))
    ++num_taken;
  EXPECT_TRUE(matcher.is_exhausted()) << "though no mask was asked for";
}

TEST(Grammar, GivesUpACallThatIsTooMuchWork) {
  const Model model("/models/stories");
  const int32_t letter = id_of(model, "a");
  int num_exhausted = 0;
  for (const Source& source : hostile_sources()) {
    SCOPED_TRACE(source.text.substr(0, 60));
    const Grammar grammar = compiled(model, source);
    Matcher matcher = grammar.matcher();
    std::vector<uint32_t> mask(model.vocabulary.num_mask_words());
    int64_t num_taken = 0;
    while (num_taken < 60 && matcher.accept(letter)) {
      matcher.fill(mask);
      ++num_taken;
    }
    EXPECT_TRUE(num_taken == 60 || matcher.is_exhausted());
    if (!matcher.is_exhausted()) continue;
    ++num_exhausted;
    EXPECT_TRUE(allowed(model, matcher).empty());
    EXPECT_FALSE(matcher.accept(letter));
    // Only the matcher that did too much work is exhausted. Another matcher of the same grammar
    // still accepts a token on this thread.
    EXPECT_TRUE(grammar.matcher().accept(letter));
  }
  EXPECT_GE(num_exhausted, 1);
}

// Returns a vocabulary of 128k tokens: words with and without a leading space, numbers, and the
// punctuation of JSON.
Model large_model() {
  json::value file =
      json::parse_file(std::string(ENCORE_SOURCE_DIR) + "/tests/tokenizers/llama3/tokenizer.json");
  json::object& vocabulary = file.at("model").at("vocab").as_object();
  int64_t next = 0;
  for (const json::value& token : file.at("added_tokens").as_array())
    next = std::max(next, token.at("id").to_number<int64_t>() + 1);
  const auto add = [&](const std::string& text) {
    for (const char* const space : {"", "\u0120"}) {
      if (vocabulary.emplace(space + text, next).second) ++next;
    }
  };
  const auto add_all = [&](auto&& self, const std::string& begin, std::string_view letters,
                           int num_letters) -> void {
    if (num_letters == 0) return add(begin);
    for (const char letter : letters)
      self(self, begin + letter, letters, num_letters - 1);
  };
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  constexpr std::string_view kCapitals = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  add_all(add_all, "", kLetters, 3);
  add_all(add_all, "", kCapitals, 3);
  for (const char capital : kCapitals)
    add_all(add_all, std::string(1, capital), kLetters, 2);
  add_all(add_all, "", "0123456789", 3);
  add_all(add_all, "", "\"{}[]:,.", 4);
  add_all(add_all, "th", kLetters, 2);
  add_all(add_all, "e", "abdeinorst", 4);
  const TempDir dir;
  dir.write("tokenizer.json", json::to_text(file));
  return Model(text::Tokenizer::load(dir.path()));
}

// JSON schemas as the libraries pydantic and zod and the SDKs of LLM providers write them.
constexpr const char* kSchemasOfApplications[] = {
    R"({"$defs": {
          "Role": {"enum": ["admin", "editor", "viewer"], "title": "Role", "type": "string"},
          "Address": {"properties": {
              "street": {"title": "Street", "type": "string"},
              "zip": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "title": "Zip"}},
            "required": ["street"], "title": "Address", "type": "object"},
          "Person": {"properties": {
              "name": {"maxLength": 80, "minLength": 1, "title": "Name", "type": "string"},
              "age": {"exclusiveMinimum": 0, "maximum": 150, "title": "Age", "type": "integer"},
              "role": {"$ref": "#/$defs/Role"},
              "addresses": {"items": {"$ref": "#/$defs/Address"}, "maxItems": 4, "title": "Addresses",
                            "type": "array"},
              "manager": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}], "default": null}},
            "required": ["name", "age", "role", "addresses"], "title": "Person", "type": "object"}},
        "$ref": "#/$defs/Person"})",
    R"({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {
          "id": {"type": "string", "format": "uuid"},
          "email": {"type": "string", "pattern": "^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\\.[a-zA-Z]{2,}$"},
          "created": {"type": "string", "format": "date-time"},
          "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 10},
          "event": {"anyOf": [
            {"type": "object", "properties": {"kind": {"type": "string", "const": "click"},
               "x": {"type": "number"}, "y": {"type": "number"}},
             "required": ["kind", "x", "y"], "additionalProperties": false},
            {"type": "object", "properties": {"kind": {"type": "string", "const": "key"},
               "code": {"type": "string"}, "modifiers": {"type": "array", "items": {"enum": ["shift", "ctrl"]}}},
             "required": ["kind", "code"], "additionalProperties": false}]},
          "meta": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}},
        "required": ["id", "email", "event"], "additionalProperties": false})",
    R"({"type": "object", "properties": {
          "steps": {"type": "array", "items": {"type": "object", "properties": {
              "explanation": {"type": "string"}, "output": {"type": "string"}},
            "required": ["explanation", "output"], "additionalProperties": false}},
          "final_answer": {"type": "string"}},
        "required": ["steps", "final_answer"], "additionalProperties": false})",
    R"({"type": "object"})"};

TEST(Grammar, TheLimitOfACallEndsNoSchemaOfApplications) {
  const Model model = large_model();
  ASSERT_GE(model.vocabulary.size(), 128'000);
  for (const char* const schema : kSchemasOfApplications) {
    const Grammar grammar = compiled(model, {.kind = SourceKind::kJsonSchema, .text = schema});
    (void)sample(model, grammar, 1, 30);
  }
}

// Tests the schemas of tests/schemas/models.json, which libraries have written: all of them if the
// environment variable ENCORE_SCHEMAS is set, and otherwise every eighth.
// tests/schemas/models_test.py checks answers against the same schemas.
TEST(Grammar, TheLimitOfACallEndsNoSchemaThatALibraryWrites) {
  const Model model = large_model();
  ASSERT_GE(model.vocabulary.size(), 128'000);
  const json::value models =
      json::parse_file(std::string(ENCORE_SOURCE_DIR) + "/tests/schemas/models.json");
  const size_t stride = std::getenv("ENCORE_SCHEMAS") == nullptr ? 8 : 1;
  size_t number = 0;
  for (const auto& [name, schema] : models.as_object()) {
    if (number++ % stride != 0) continue;
    SCOPED_TRACE(std::string(name));
    const Grammar grammar = compiled(
        model,
        {.kind = SourceKind::kJsonSchema, .text = json::exact_text(schema), .is_closed = true});
    (void)sample(model, grammar, number, 40);
  }
  EXPECT_GE(number, 60U);
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
