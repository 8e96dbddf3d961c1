// Finds the rows of a sequence's drafts among the tokens of a step. The op `lookup_drafts` (ops.cc)
// uses the same rule.
#pragma once

#include <cstdint>

#include "backend/host_device.h"

namespace encore {

// The row of a sequence's last known token, and the number of drafts in the rows after it.
struct DraftPlaces {
  int32_t known_row = 0;
  int32_t num_drafts = 0;
};

// Returns the draft places of a sequence in a mixed step. In the step's input `ids`, a draft has
// the id -1. The drafts of the sequence are the unbroken run of such rows that ends at its last
// row, of which at most `most` count.
ENCORE_HOST_DEVICE inline DraftPlaces mixed_draft_places(const int32_t* ids, int32_t last_row,
                                                         int32_t most) {
  int32_t count = 0;
  while (count < most && count < last_row && ids[last_row - count] == -1)
    ++count;
  return {last_row - count, count};
}

// Returns the draft places of sequence `b` in a uniform step of `q` tokens for each sequence.
ENCORE_HOST_DEVICE inline DraftPlaces uniform_draft_places(int32_t b, int32_t q) {
  return {b * q, q - 1};
}

}  // namespace encore
