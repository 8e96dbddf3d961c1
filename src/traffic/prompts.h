// Prompts of made-up tokens with the lengths, and the equal beginnings, of a trace's.
#pragma once

#include <cstdint>
#include <vector>

#include "traffic/trace.h"

namespace encore::traffic {

// Tokens below `vocab_size`, a function of `seed`: those of a block, of its id as well; those of no
// block, of the request's `number` as well.
std::vector<int32_t> prompt_tokens(const TracedRequest& request, int64_t number, int64_t vocab_size,
                                   uint64_t seed);

}  // namespace encore::traffic
