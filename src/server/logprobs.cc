#include "server/logprobs.h"

#include <algorithm>

#include "text/unicode.h"

namespace encore::server {
namespace {

// The log probability that answers show for impossible tokens, instead of minus infinity, which
// JSON lacks. Clients of OpenAI's protocol know this number.
constexpr float kNever = -9999;

TokenLogprobs::Entry entry(const text::Tokenizer* tokenizer, int32_t token, float logprob) {
  const float known = logprob >= kNever ? logprob : kNever;  // replaces NaN too
  if (tokenizer == nullptr) return {token, std::to_string(token), known};
  if (!tokenizer->is_special(token)) return {token, tokenizer->token_bytes(token), known};
  return {token, std::string(tokenizer->token(token).value_or("")), known};
}

std::string text_of(const TokenLogprobs::Entry& entry) {
  return text::to_valid_utf8(entry.bytes);
}

int64_t num_characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  });
}

json::object to_json(const TokenLogprobs::Entry& entry) {
  json::array bytes;
  for (const char byte : entry.bytes)
    bytes.emplace_back(static_cast<unsigned char>(byte));
  return {{"token", text_of(entry)}, {"logprob", entry.logprob}, {"bytes", std::move(bytes)}};
}

}  // namespace

TokenLogprobs read_logprobs(const text::Tokenizer* tokenizer, int32_t token, const LogprobRow& row,
                            int32_t num_top) {
  TokenLogprobs read{entry(tokenizer, token, row.logprob), row.rank, 0, {}};
  read.num_characters = num_characters(read.chosen.bytes);
  for (int32_t i = 0; i < num_top; ++i)
    read.top.push_back(entry(tokenizer, row.top[i].token, row.top[i].logprob));
  return read;
}

std::vector<TokenLogprobs> read_prompt_logprobs(const text::Tokenizer* tokenizer,
                                                std::span<const int32_t> prompt,
                                                std::span<const LogprobRow> rows, int32_t num_top) {
  std::vector<TokenLogprobs> tokens;
  if (rows.size() + 1 != prompt.size())
    return tokens;  // the generator does not compute log probabilities of prompts
  tokens.push_back({entry(tokenizer, prompt[0], 0), std::nullopt, 0, {}});
  for (size_t i = 0; i < rows.size(); ++i)
    tokens.push_back(read_logprobs(tokenizer, prompt[i + 1], rows[i], num_top));
  if (tokenizer == nullptr) return tokens;
  // Characters are counted as in the prompt's text, to which special tokens add none, and where the
  // first token may lose its leading space.
  text::Detokenizer detokenizer(*tokenizer);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i].num_characters = num_characters(detokenizer.push(prompt[i]));
  return tokens;
}

json::array prompt_logprobs(std::span<const TokenLogprobs> prompt, int32_t num_top) {
  json::array list;
  const auto add = [](json::object& object, const TokenLogprobs::Entry& entry, int64_t rank) {
    object.emplace(std::to_string(entry.token), json::object{{"logprob", entry.logprob},
                                                             {"rank", rank},
                                                             {"decoded_token", text_of(entry)}});
  };
  for (const TokenLogprobs& token : prompt) {
    if (!token.rank) {
      list.emplace_back(nullptr);
      continue;
    }
    json::object object;
    add(object, token.chosen, *token.rank);
    const auto count = std::min(token.top.size(), static_cast<size_t>(num_top));
    for (size_t i = 0; i < count; ++i)
      add(object, token.top[i], static_cast<int64_t>(i) + 1);
    list.emplace_back(std::move(object));
  }
  return list;
}

json::object logprobs_of(const TokenLogprobs& token) {
  json::object object = to_json(token.chosen);
  json::array top;
  for (const TokenLogprobs::Entry& likely : token.top)
    top.emplace_back(to_json(likely));
  object["top_logprobs"] = std::move(top);
  return object;
}

json::object chat_logprobs(std::span<const TokenLogprobs> tokens) {
  json::array content;
  for (const TokenLogprobs& token : tokens)
    content.emplace_back(logprobs_of(token));
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::object completion_logprobs(std::span<const TokenLogprobs> tokens, int32_t num_top,
                                 int64_t& offset) {
  json::array texts;
  json::array logprobs;
  json::array tops;
  json::array offsets;
  for (const TokenLogprobs& token : tokens) {
    const std::string text = text_of(token.chosen);
    texts.emplace_back(text);
    offsets.emplace_back(offset);
    offset += token.num_characters;
    if (!token.rank) {
      logprobs.emplace_back(nullptr);
      tops.emplace_back(nullptr);
      continue;
    }
    logprobs.emplace_back(token.chosen.logprob);
    json::object top;
    const auto count = std::min(token.top.size(), static_cast<size_t>(num_top));
    for (const TokenLogprobs::Entry& likely : std::span(token.top).first(count))
      // If two tokens have the same text, emplace() keeps the first, which is the likelier one.
      top.emplace(text_of(likely), likely.logprob);
    top.emplace(text, token.chosen.logprob);
    tops.emplace_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace encore::server
