// The outputs of each part of a product that was merged: the attribute `lora_blocks` of lora_expand.
// Shared by all devices.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/attrs.h"

namespace encore {

// Where each block of columns ends, in order; one block of all columns where the attribute is absent.
inline std::vector<int64_t> lora_block_ends(const ir::Attrs& attrs, int64_t num_columns) {
  if (attrs.find("lora_blocks") == nullptr) return {num_columns};
  std::vector<int64_t> ends;
  for (const int64_t block : attrs.get_ints("lora_blocks"))
    ends.push_back(block + (ends.empty() ? 0 : ends.back()));
  return ends;
}

}  // namespace encore
