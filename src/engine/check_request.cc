// Decides which requests the engine takes.
#include <cmath>
#include <limits>
#include <set>

#include "engine/engine.h"
#include "engine/input_writer.h"

namespace encore::engine {
namespace {

std::optional<Rejection> check_token_bias(const std::vector<TokenBias>& biases, int64_t vocab) {
  using enum RejectionReason;
  if (std::ssize(biases) > kMaxTokenBias) {
    return Rejection{kBadParameter, fmt::format("at most {} tokens have a bias, not {}",
                                                kMaxTokenBias, biases.size())};
  }
  std::set<int32_t> seen;
  for (const auto& [token, bias] : biases) {
    if (token < 0 || token >= vocab) {
      return Rejection{kUnknownToken, fmt::format("token {}, which has a bias, is outside the "
                                                  "vocabulary of {}",
                                                  token, vocab)};
    }
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity())
      return Rejection{kBadParameter, fmt::format("the bias of token {} is {}", token, bias)};
    if (!seen.insert(token).second)
      return Rejection{kBadParameter, fmt::format("token {} has two biases", token)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Rejection> Engine::check(const Request& request) const {
  using enum RejectionReason;
  const auto length = static_cast<int64_t>(request.prompt.size());
  const int64_t vocab = model_.config().vocab_size;
  if (length == 0) return Rejection{kEmptyPrompt, "the prompt is empty"};
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= vocab) {
      return Rejection{kUnknownToken,
                       fmt::format("token {} is outside the vocabulary of {}", token, vocab)};
    }
  }
  for (const int32_t token : request.stop_tokens) {
    if (token < 0 || token >= vocab) {
      return Rejection{kUnknownToken,
                       fmt::format("stop token {} is outside the vocabulary of {}", token, vocab)};
    }
  }
  if (request.max_tokens < 1) return Rejection{kBadParameter, "max_tokens is at least 1"};
  if (request.min_tokens < 0 || request.min_tokens > request.max_tokens)
    return Rejection{kBadParameter, "min_tokens is at least 0 and at most max_tokens"};
  if (request.grammar && request.min_tokens > 0) {
    return Rejection{kBadParameter,
                     "min_tokens goes with no grammar, which says itself when an answer may end"};
  }
  if (request.num_prompt_logprobs < -1 || request.num_prompt_logprobs > LogprobRow::kMaxTop) {
    return Rejection{kBadParameter, fmt::format("num_prompt_logprobs is at most {}, not {}",
                                                LogprobRow::kMaxTop, request.num_prompt_logprobs)};
  }
  if (request.num_prompt_logprobs >= 0 && !model_.scores_prompts())
    return Rejection{kBadParameter, "the model is loaded without what scores prompts"};
  if (auto rejection = check_token_bias(request.token_bias, vocab)) return rejection;
  if (request.min_tokens > 0 &&
      std::ssize(unsent_stops(request.stop_tokens)) + std::ssize(request.token_bias) >
          kMaxTokenBias) {
    return Rejection{
        kBadParameter,
        fmt::format("beside min_tokens, stop tokens and tokens with a bias are at most "
                    "{} together, not {}: leave some out",
                    kMaxTokenBias + kMaxStopTokens,
                    request.stop_tokens.size() + request.token_bias.size())};
  }
  if (!request.adapter.empty() && find_adapter(request) == nullptr) {
    return Rejection{kBadParameter,
                     fmt::format("there is no adapter {:?}: name one that was loaded (--lora)",
                                 request.adapter)};
  }
  if (auto problem = sample::problem(request.sampling)) return Rejection{kBadParameter, *problem};
  if (request.max_tokens > model_.limits().max_seq_len - length) {
    return Rejection{
        kTooLong,
        fmt::format("{} prompt tokens and {} to generate are more than the {} of one sequence",
                    length, request.max_tokens, model_.limits().max_seq_len)};
  }
  if (!scheduler_.can_fit(length + request.max_tokens)) {
    return Rejection{
        kTooManyPages,
        fmt::format("{} tokens do not fit the KV pool of {}: raise --kv-tokens",
                    length + request.max_tokens, pool_.num_pages() * pool_.page_size())};
  }
  return std::nullopt;
}

}  // namespace encore::engine
