// Random samplers behind the mask: what they leave must be what the source says.
#include "grammar/grammar.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>

#include <boost/json/parse.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/source_dir.h"
#include "base/temp_dir.h"
#include "text/answer/answer_parser.h"
#include "text/regex.h"

namespace encore::grammar {
namespace {

struct Model {
  explicit Model(const std::string& folder)
      : Model(text::Tokenizer::load(std::string(ENCORE_SOURCE_DIR) + folder)) {}
  explicit Model(text::Tokenizer loaded)
      : tokenizer(std::move(loaded)),
        end(tokenizer.eos_id().value_or(tokenizer.vocab_size())),
        vocabulary(tokenizer, tokenizer.vocab_size() + 7, {&end, 1}) {}

  text::Tokenizer tokenizer;
  int32_t end;  // an id behind the tokenizer's where it names none
  Vocabulary vocabulary;
};

Grammar compiled(const Model& model, const Source& source) {
  auto result = Grammar::compile(model.vocabulary, source);
  if (const auto* const why = std::get_if<std::string>(&result)) ADD_FAILURE() << *why;
  return std::get<Grammar>(std::move(result));
}

std::vector<int32_t> tokens_of(const std::vector<uint32_t>& mask) {
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < std::ssize(mask) * 32; ++t) {
    if ((mask[t / 32] >> (t % 32) & 1U) != 0) tokens.push_back(static_cast<int32_t>(t));
  }
  return tokens;
}

std::vector<int32_t> allowed(const Model& model, Matcher& matcher) {
  std::vector<uint32_t> mask(model.vocabulary.num_mask_words(), 0xdeadbeef);
  matcher.fill(mask);
  return tokens_of(mask);
}

struct Answer {
  std::string text;
  bool is_whole = false;
};

using Clock = std::chrono::steady_clock;

// Any token that may come is as likely as another, but for the end, which is taken half of the time.
// `fill_times`: gets how long each mask took; may be null.
Answer sample(const Model& model, const Grammar& grammar, uint64_t seed, int64_t max_tokens,
              std::vector<Clock::duration>* fill_times = nullptr) {
  std::mt19937_64 random(seed);
  Matcher matcher = grammar.matcher();
  Answer answer;
  for (int64_t i = 0; i < max_tokens; ++i) {
    std::vector<uint32_t> mask(model.vocabulary.num_mask_words(), 0xdeadbeef);
    const auto start = Clock::now();
    matcher.fill(mask);
    if (fill_times != nullptr) fill_times->push_back(Clock::now() - start);
    const std::vector<int32_t> tokens = tokens_of(mask);
    EXPECT_FALSE(tokens.empty()) << "no way on from: " << answer.text;
    if (tokens.empty()) return answer;
    int32_t token = tokens[random() % tokens.size()];
    if (matcher.is_complete() && random() % 2 == 0) token = model.end;
    EXPECT_TRUE(matcher.accept(token)) << token << " behind " << answer.text;
    if (token == model.end) {
      answer.is_whole = matcher.has_ended();
      return answer;
    }
    EXPECT_LT(token, model.tokenizer.vocab_size());
    answer.text += model.tokenizer.is_special(token) ? std::string(*model.tokenizer.token(token))
                                                     : model.tokenizer.token_bytes(token);
  }
  return answer;
}

bool matches(const std::string& text, const std::string& pattern) {
  const text::Regex regex("^(?:" + pattern + ")$", "the test");
  std::vector<text::Span> found;
  regex.find_all(text, {0, static_cast<uint32_t>(text.size())}, found);
  return found.size() == 1 && found[0].size() == text.size();
}

// Is `value` valid? Knows the keywords that the schemas below have.
bool is_valid(const json::value& value, const json::value& schema) {
  const json::object& rules = schema.get_object();
  const auto number = [&](const char* key, double fallback) {
    return rules.contains(key) ? rules.at(key).to_number<double>() : fallback;
  };
  if (const auto* const options = rules.if_contains("anyOf")) {
    return std::any_of(options->get_array().begin(), options->get_array().end(),
                       [&](const json::value& option) { return is_valid(value, option); });
  }
  if (const auto* const values = rules.if_contains("enum")) {
    const json::array& list = values->get_array();
    return std::find(list.begin(), list.end(), value) != list.end();
  }
  const std::string type = rules.at("type").get_string().c_str();
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "integer") {
    return value.is_number() &&
           std::floor(value.to_number<double>()) == value.to_number<double>() &&
           value.to_number<double>() >= number("minimum", -1e300) &&
           value.to_number<double>() <= number("maximum", 1e300);
  }
  if (type == "number") return value.is_number();
  if (type == "string") {
    if (!value.is_string()) return false;
    const std::string text = value.get_string().c_str();
    if (rules.contains("pattern")) return matches(text, rules.at("pattern").get_string().c_str());
    const auto is_first = [](char c) { return (static_cast<uint8_t>(c) & 0xc0U) != 0x80; };
    const auto length =
        std::count_if(value.get_string().begin(), value.get_string().end(), is_first);
    return length >= number("minLength", 0) && length <= number("maxLength", 1e300);
  }
  if (type == "array") {
    if (!value.is_array()) return false;
    const json::array& items = value.get_array();
    const auto size = static_cast<double>(items.size());
    return size >= number("minItems", 0) && size <= number("maxItems", 1e300) &&
           std::all_of(items.begin(), items.end(),
                       [&](const json::value& item) { return is_valid(item, rules.at("items")); });
  }
  if (!value.is_object()) return false;
  const json::object& object = value.get_object();
  for (const auto& [key, member] : object) {
    const auto* const rule = rules.at("properties").get_object().if_contains(key);
    if (rule == nullptr || !is_valid(member, *rule)) return false;
  }
  if (!rules.contains("required")) return true;
  const json::array& required = rules.at("required").get_array();
  return std::all_of(required.begin(), required.end(),
                     [&](const json::value& key) { return object.contains(key.get_string()); });
}

// A schema whose values have a bounded length.
json::value random_schema(std::mt19937_64& random, int depth) {
  const auto below = [&](uint64_t n) { return random() % n; };
  switch (below(depth > 0 ? 10 : 7)) {
    case 0:
      return {{"type", "boolean"}};
    case 1:
      return {{"type", "null"}};
    case 2:
      return {
          {"type", "integer"}, {"minimum", -20 + static_cast<int>(below(20))}, {"maximum", 1000}};
    case 3:
      return {{"type", "string"}, {"minLength", below(3)}, {"maxLength", 3 + below(9)}};
    case 4:
      return {{"type", "string"}, {"pattern", "^[a-c]{2,5}-[0-9]{1,3}$"}};
    case 5:
      return {{"enum", {"red", "blue \"or\" \\ so", 7, nullptr, true, "r\u00e9d"}}};
    case 6:
      return {{"type", "string"}, {"pattern", "^[ -~]{1,6}[A-Z\"]$"}};
    case 7:
      return {{"type", "array"},
              {"items", random_schema(random, depth - 1)},
              {"minItems", below(2)},
              {"maxItems", 1 + below(3)}};
    case 8:
      return {{"anyOf", {random_schema(random, depth - 1), random_schema(random, depth - 1)}}};
    default:
      break;
  }
  json::object properties;
  json::array required;
  const uint64_t num_properties = 1 + below(4);
  for (uint64_t i = 0; i < num_properties; ++i) {
    const std::string key = fmt::format("key {}", i);
    properties[key] = random_schema(random, depth - 1);
    if (below(3) > 0) required.emplace_back(key);
  }
  return {{"type", "object"}, {"properties", properties}, {"required", required}};
}

// Asks for a fair share of values that are whole at the end, and says how long things took.
void expect_answers_that_fit(const Model& model, int64_t num_schemas) {
  std::mt19937_64 random(7);
  int64_t num_whole = 0;
  std::vector<Clock::duration> compile_times;
  std::vector<Clock::duration> fill_times;
  for (int64_t i = 0; i < num_schemas; ++i) {
    const json::value schema = random_schema(random, 3);
    const std::string text = json::to_text(schema);
    const auto start = Clock::now();
    const Grammar grammar = compiled(model, {.kind = SourceKind::kJsonSchema, .text = text});
    compile_times.push_back(Clock::now() - start);
    const Answer answer = sample(model, grammar, random(), 600, &fill_times);
    if (!answer.is_whole) continue;  // every token of it had a way on
    ++num_whole;
    boost::system::error_code error;
    const json::value value = boost::json::parse(answer.text, error);
    ASSERT_FALSE(error) << answer.text << "\nof " << text;
    EXPECT_TRUE(is_valid(value, schema)) << answer.text << "\nof " << text;
  }
  EXPECT_GT(num_whole, num_schemas * 3 / 4);
  const auto microseconds = [](std::vector<Clock::duration>& times, double share) {
    std::sort(times.begin(), times.end());
    const Clock::duration time = times.at(static_cast<size_t>(share * (times.size() - 1)));
    return std::chrono::duration<double, std::micro>(time).count();
  };
  fmt::print(
      "{} of {} whole; p50 and p99: compiled in {:.0f} and {:.0f} us, {} masks in {:.1f} and "
      "{:.1f} us\n",
      num_whole, num_schemas, microseconds(compile_times, 0.5), microseconds(compile_times, 0.99),
      fill_times.size(), microseconds(fill_times, 0.5), microseconds(fill_times, 0.99));
}

class OfAModel : public testing::TestWithParam<const char*> {
 protected:
  Model model{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Tokenizers, OfAModel,
                         testing::Values("/models/stories", "/tests/tokenizers/llama3",
                                         "/tests/tokenizers/spm"),
                         [](const auto& info) {
                           std::string name = info.param;
                           name.erase(0, name.rfind('/') + 1);
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(OfAModel, HoldsRandomAnswersToRandomSchemas) {
  expect_answers_that_fit(model, 40);
}

// ENCORE_TOKENIZER=FOLDER grammar_test --gtest_filter='*LargeVocabulary*'
TEST(Grammar, HoldsRandomAnswersToAThousandSchemasOfALargeVocabulary) {
  const char* const folder = std::getenv("ENCORE_TOKENIZER");
  if (folder == nullptr) GTEST_SKIP() << "ENCORE_TOKENIZER names no folder of a tokenizer.json";
  const Model model(text::Tokenizer::load(folder));
  EXPECT_GE(model.tokenizer.vocab_size(), 50'000);
  expect_answers_that_fit(model, 1000);
}

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
