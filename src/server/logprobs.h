// Log probabilities of the tokens of an answer, as the OpenAI protocol writes them.
#pragma once

#include <cstdint>
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
    std::string bytes;  // that the token adds to the text; of a special token its spelling
    float logprob = 0;
  };
  Entry chosen;
  std::vector<Entry> top;  // the likeliest tokens, likeliest first
};

// What the engine gave for `token`, of which `num_top` alternatives were asked for. Without a
// tokenizer a token is its id.
TokenLogprobs read_logprobs(const text::Tokenizer* tokenizer, int32_t token, const LogprobRow& row,
                            int32_t num_top);

// {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}], "refusal": null}.
json::object chat_logprobs(std::span<const TokenLogprobs> tokens);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. `offset`: of the first token in the
// text, and behind the call that of the token behind the last. Units: characters.
json::object completion_logprobs(std::span<const TokenLogprobs> tokens, int64_t& offset);

}  // namespace encore::server
