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

// Of one token.
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
  // Which part of the answer's new ones has its text; nothing while that is held back, and then it
  // goes with the token behind it.
  std::optional<size_t> part = {};
};

// What the engine gave for `token`, of which `num_top` alternatives were asked for. Without a
// tokenizer a token is its id.
TokenLogprobs read_logprobs(const text::Tokenizer* tokenizer, int32_t token, const LogprobRow& row,
                            int32_t num_top);
// Of all tokens of a prompt, of which `rows` has those behind the first.
std::vector<TokenLogprobs> read_prompt_logprobs(const text::Tokenizer* tokenizer,
                                                std::span<const int32_t> prompt,
                                                std::span<const LogprobRow> rows, int32_t num_top);

// {"token", "logprob", "bytes", "top_logprobs": [...]}.
json::object logprobs_of(const TokenLogprobs& token);
// {"content": [those objects], "refusal": null}.
json::object chat_logprobs(std::span<const TokenLogprobs> tokens);

// [null, {"ID": {"logprob", "rank", "decoded_token"}, ...}, ...]: of each token of a prompt that one
// first, then `num_top` of the likeliest. Source: vLLM, OpenAI-compatible server, prompt_logprobs.
json::array prompt_logprobs(std::span<const TokenLogprobs> prompt, int32_t num_top);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}, with `num_top` of the likeliest.
// `offset`: of the first token in the
// text, and behind the call that of the token behind the last. Units: characters.
json::object completion_logprobs(std::span<const TokenLogprobs> tokens, int32_t num_top,
                                 int64_t& offset);

}  // namespace encore::server
