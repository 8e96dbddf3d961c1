// Log probabilities of the tokens of an answer, and of its prompt, as the OpenAI protocol writes
// them.
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

// The log probabilities of one token.
struct TokenLogprobs {
  struct Entry {
    int32_t token = 0;
    std::string bytes;  // that the token adds to the text; of a special token its spelling
    float logprob = 0;
  };
  Entry chosen;
  std::optional<int32_t> rank;  // 1: no token is likelier; the first of a prompt has neither it nor
                                // a log probability
  int64_t num_characters = 0;   // that the token adds to the text
  std::vector<Entry> top;       // the likeliest tokens, likeliest first
  // The index of the answer's new part that has the token's text; nothing while the text is held
  // back, and then it goes with the next token.
  std::optional<size_t> part = {};
};

// Reads the row that the engine gave for `token`, of which `num_top` alternatives were asked for.
// Without a tokenizer a token's text is its id.
TokenLogprobs read_logprobs(const text::Tokenizer* tokenizer, int32_t token, const LogprobRow& row,
                            int32_t num_top);
// Reads the rows of all tokens of a prompt; `rows` has none for the first token.
std::vector<TokenLogprobs> read_prompt_logprobs(const text::Tokenizer* tokenizer,
                                                std::span<const int32_t> prompt,
                                                std::span<const LogprobRow> rows, int32_t num_top);

// {"token", "logprob", "bytes", "top_logprobs": [...]}.
json::object logprobs_of(const TokenLogprobs& token);
// {"content": [those objects], "refusal": null}.
json::object chat_logprobs(std::span<const TokenLogprobs> tokens);

// Writes [null, {"ID": {"logprob", "rank", "decoded_token"}, ...}, ...]: for each token of a prompt
// the token itself, then `num_top` of the likeliest. Source: vLLM, OpenAI-compatible server,
// prompt_logprobs.
json::array prompt_logprobs(std::span<const TokenLogprobs> prompt, int32_t num_top);

// Writes {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, with `num_top` of the
// likeliest. `offset` is where the first token lies in the text; the call moves it behind the last
// token. Units: characters.
json::object completion_logprobs(std::span<const TokenLogprobs> tokens, int32_t num_top,
                                 int64_t& offset);

}  // namespace encore::server
