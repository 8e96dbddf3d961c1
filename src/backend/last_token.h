// Resolves ids in a step's inputs that stand for tokens which the host does not know yet.
#pragma once

#include <cstdint>

#include "backend/host_device.h"

namespace encore {

// Returns the token that an id of a step's inputs stands for. The id -2 - m stands for the token
// that the last step sampled for its row m (model::last_token_of); any other id is the token
// itself. `last_tokens`, i32[M], holds the tokens of the last step by row.
ENCORE_HOST_DEVICE inline int32_t known_token(int32_t id, const int32_t* last_tokens) {
  return id <= -2 ? last_tokens[-2 - id] : id;
}

}  // namespace encore
