// Makes prompts of random tokens that have the lengths, and the shared beginnings, of a trace's
// prompts.
#pragma once

#include <cstdint>
#include <vector>

#include "traffic/trace.h"

namespace encore::traffic {

// Returns a prompt of random tokens below `vocab_size`. The tokens of a block depend on `seed` and
// the block's id alone. Tokens behind the blocks depend on `seed` and the request's `number`.
std::vector<int32_t> prompt_tokens(const TracedRequest& request, int64_t number, int64_t vocab_size,
                                   uint64_t seed);

}  // namespace encore::traffic
