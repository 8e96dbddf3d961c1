// The places of a sequence's drafts among the tokens of a step, by the rule of `lookup_drafts` (ops.cc).
#pragma once

#include <cstdint>

#include "backend/host_device.h"

namespace encore {

// The row of a sequence's last token that is known, and the number of drafts in the rows behind it.
struct DraftPlaces {
  int32_t known_row = 0;
  int32_t num_drafts = 0;
};

// The places in a mixed step: drafts are as many ids of -1 as end at the sequence's last row, at most `most`.
ENCORE_HOST_DEVICE inline DraftPlaces mixed_draft_places(const int32_t* ids, int32_t last_row,
                                                         int32_t most) {
  int32_t count = 0;
  while (count < most && count < last_row && ids[last_row - count] == -1)
    ++count;
  return {last_row - count, count};
}

// The places in a uniform step of `q` tokens a sequence, of sequence `b`.
ENCORE_HOST_DEVICE inline DraftPlaces uniform_draft_places(int32_t b, int32_t q) {
  return {b * q, q - 1};
}

}  // namespace encore
