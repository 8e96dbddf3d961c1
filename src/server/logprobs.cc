#include "server/logprobs.h"

#include <algorithm>

#include "text/unicode.h"

namespace encore::server {
namespace {

// JSON has no infinities, and clients of the protocol know this number.
constexpr float kNever = -9999;

TokenLogprobs::Entry entry(const text::Tokenizer* tokenizer, int32_t token, float logprob) {
  const float known = logprob >= kNever ? logprob : kNever;  // NaN, too
  if (tokenizer == nullptr) return {std::to_string(token), known};
  if (!tokenizer->is_special(token)) return {tokenizer->token_bytes(token), known};
  return {std::string(tokenizer->token(token).value_or("")), known};
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
  TokenLogprobs read{entry(tokenizer, token, row.logprob), {}};
  for (int32_t i = 0; i < num_top; ++i)
    read.top.push_back(entry(tokenizer, row.top[i].token, row.top[i].logprob));
  return read;
}

json::object chat_logprobs(std::span<const TokenLogprobs> tokens) {
  json::array content;
  for (const TokenLogprobs& token : tokens) {
    json::object object = to_json(token.chosen);
    json::array top;
    for (const TokenLogprobs::Entry& likely : token.top)
      top.emplace_back(to_json(likely));
    object["top_logprobs"] = std::move(top);
    content.emplace_back(std::move(object));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::object completion_logprobs(std::span<const TokenLogprobs> tokens, int64_t& offset) {
  json::array texts;
  json::array logprobs;
  json::array tops;
  json::array offsets;
  for (const TokenLogprobs& token : tokens) {
    const std::string text = text_of(token.chosen);
    texts.emplace_back(text);
    logprobs.emplace_back(token.chosen.logprob);
    json::object top;
    for (const TokenLogprobs::Entry& likely : token.top)
      top.emplace(text_of(likely), likely.logprob);  // the likelier of two that look alike
    top.emplace(text, token.chosen.logprob);
    tops.emplace_back(std::move(top));
    offsets.emplace_back(offset);
    offset += num_characters(token.chosen.bytes);
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace encore::server
