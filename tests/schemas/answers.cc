// Generates random answers that a schema's grammar allows, without a model, for
// random_schemas_test.py. A line of stdin is {"schema": ..., "seed": N, "answers": N, "closed":
// true}. Its line of stdout is {"answers": [...], "cut": N}, where N answers did not end, or
// {"refused": "why"}.
#include <iostream>
#include <random>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/source_dir.h"
#include "grammar/grammar.h"

namespace {

using namespace encore;

constexpr int64_t kMaxTokens = 400;

struct Model {
  text::Tokenizer tokenizer = text::Tokenizer::load(ENCORE_SOURCE_DIR "/models/stories");
  int32_t end = *tokenizer.eos_id();
  grammar::Vocabulary vocabulary{tokenizer, tokenizer.vocab_size(), {&end, 1}};
};

// Returns a random allowed token. Prefers tokens that close or separate values, always if
// `is_late`, so that the answer ends.
int32_t choose(const Model& model, const std::vector<uint32_t>& mask, bool is_late,
               std::mt19937_64& random) {
  std::vector<int32_t> tokens;
  std::vector<int32_t> closing;
  for (int32_t token = 0; token < model.vocabulary.size(); ++token) {
    if ((mask[token / 32] >> (token % 32) & 1U) == 0) continue;
    tokens.push_back(token);
    const std::string bytes = token == model.end ? "" : model.tokenizer.token_bytes(token);
    if (bytes.starts_with('"') || bytes.starts_with(']') || bytes.starts_with('}') ||
        bytes.starts_with(','))
      closing.push_back(token);
  }
  if (tokens.empty()) fail(ErrorKind::kModel, "no token may come");
  const std::vector<int32_t>& list =
      !closing.empty() && (is_late || random() % 4 == 0) ? closing : tokens;
  return list[random() % list.size()];
}

// Returns a random answer, or nothing if the answer does not end within kMaxTokens tokens.
std::optional<std::string> answer(const Model& model, const grammar::Grammar& grammar,
                                  std::mt19937_64& random) {
  grammar::Matcher matcher = grammar.matcher();
  std::vector<uint32_t> mask(static_cast<size_t>(model.vocabulary.num_mask_words()));
  std::string text;
  for (int64_t i = 0; i < kMaxTokens; ++i) {
    matcher.fill(mask);
    int32_t token = choose(model, mask, i > kMaxTokens / 4, random);
    if (matcher.is_complete() && random() % 2 == 0) token = model.end;
    if (!matcher.accept(token))
      fail(ErrorKind::kModel, "an allowed token is refused behind {}", text);
    if (token == model.end) return text;
    text += model.tokenizer.token_bytes(token);
  }
  return std::nullopt;
}

json::value answers(const Model& model, const json::value& request) {
  const grammar::Source source{.kind = grammar::SourceKind::kJsonSchema,
                               .text = json::exact_text(request.at("schema")),
                               .is_closed = request.at("closed").get_bool()};
  if (const auto why = grammar::problem(source)) return json::object{{"refused", *why}};
  const auto compiled = grammar::Grammar::compile(model.vocabulary, source);
  if (const auto* const why = std::get_if<std::string>(&compiled))
    return json::object{{"refused", *why}};
  std::mt19937_64 random(static_cast<uint64_t>(request.at("seed").to_number<int64_t>()));
  json::array texts;
  int64_t num_cut = 0;
  for (int64_t i = 0; i < request.at("answers").to_number<int64_t>(); ++i) {
    if (auto text = answer(model, std::get<grammar::Grammar>(compiled), random)) {
      texts.emplace_back(*text);
    } else {
      ++num_cut;
    }
  }
  return json::object{{"answers", std::move(texts)}, {"cut", num_cut}};
}

}  // namespace

int main() {
  const Model model;
  for (std::string line; std::getline(std::cin, line);) {
    json::value reply;
    try {
      reply = answers(model, json::parse(line, "request"));
    } catch (const Error& error) {
      reply = json::object{{"error", error.what()}};
    }
    std::cout << json::to_text(reply) << std::endl;
  }
}
