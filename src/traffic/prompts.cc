#include "traffic/prompts.h"

#include <algorithm>
#include <random>

namespace encore::traffic {
namespace {

// Says whether random tokens belong to one request or to a block of the trace, which several
// requests may share. The tokens are a function of the seed, of this value, and of the number of
// the request or of the block.
enum class Source : uint32_t { kRequest, kBlock };

void append(std::vector<int32_t>& tokens, int64_t count, int64_t vocab_size, uint64_t seed,
            Source source, int64_t number) {
  const auto low = [](uint64_t word) { return static_cast<uint32_t>(word); };
  const auto high = [](uint64_t word) { return static_cast<uint32_t>(word >> 32); };
  const auto which = static_cast<uint64_t>(number);
  std::seed_seq words{low(seed), high(seed), static_cast<uint32_t>(source), low(which),
                      high(which)};
  std::mt19937_64 random(words);
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size)));
}

}  // namespace

std::vector<int32_t> prompt_tokens(const TracedRequest& request, int64_t number, int64_t vocab_size,
                                   uint64_t seed) {
  std::vector<int32_t> tokens;
  tokens.reserve(request.input_tokens);
  for (const int64_t block : request.blocks) {
    const int64_t missing = request.input_tokens - std::ssize(tokens);
    append(tokens, std::min(kBlockTokens, missing), vocab_size, seed, Source::kBlock, block);
  }
  append(tokens, request.input_tokens - std::ssize(tokens), vocab_size, seed, Source::kRequest,
         number);
  return tokens;
}

}  // namespace encore::traffic
