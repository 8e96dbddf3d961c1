// Writes the log probabilities of the tokens of answers and of prompts in the formats of OpenAI's
// protocol.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "sample/params.h"
#include "text/tokenizer.h"

namespace encore::server {

// Holds the log probability of one token of a text, and the likeliest tokens at its place with
// their log probabilities.
struct TokenLogprobs {
  struct Entry {
    int32_t token = 0;
    std::string bytes;  // the bytes that the token adds to the text; for a special token, its name
    float logprob = 0;
  };
  Entry chosen;
  // The token's rank by probability, where 1 is the likeliest. The first token of a prompt has
  // neither a rank nor a log probability.
  std::optional<int32_t> rank;
  int64_t num_characters = 0;  // number of characters that the token adds to the text
  std::vector<Entry> top;      // the likeliest tokens, likeliest first
  // The index of the part that contains the token's text, among the parts of the Choice that holds
  // this object. Absent if the text was held back; it then appears in the part of a later token.
  std::optional<size_t> part = {};
};

// Converts the log probabilities that the engine returned for `token`, with the `num_top` likeliest
// tokens at its place. Without a tokenizer, a token's id serves as its text.
TokenLogprobs read_logprobs(const text::Tokenizer* tokenizer, int32_t token, const LogprobRow& row,
                            int32_t num_top);
// Converts the log probabilities that the engine returned for a prompt. `rows` has one row for each
// token of the prompt but the first.
std::vector<TokenLogprobs> read_prompt_logprobs(const text::Tokenizer* tokenizer,
                                                std::span<const int32_t> prompt,
                                                std::span<const LogprobRow> rows, int32_t num_top);

// Returns {"token", "logprob", "bytes", "top_logprobs": [...]}.
json::object logprobs_of(const TokenLogprobs& token);
// Returns {"content": [...], "refusal": null}, with one object of logprobs_of() for each token.
json::object chat_logprobs(std::span<const TokenLogprobs> tokens);

// Returns [null, {"ID": {"logprob", "rank", "decoded_token"}, ...}, ...]: one object for each token
// of the prompt but the first. The object lists the token itself and then the `num_top` likeliest
// tokens. Source: vLLM, OpenAI-compatible server, prompt_logprobs.
json::array prompt_logprobs(std::span<const TokenLogprobs> prompt, int32_t num_top);

// Returns {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, with the `num_top` likeliest
// tokens for each token. `offset` is the position of the first token in the text;
// completion_logprobs() advances it to the end of the last token. Units: characters.
json::object completion_logprobs(std::span<const TokenLogprobs> tokens, int32_t num_top,
                                 int64_t& offset);

}  // namespace encore::server
