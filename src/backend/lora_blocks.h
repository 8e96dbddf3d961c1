// Reads the attribute `lora_blocks` of lora_expand. Where several products were merged into one, it
// holds the number of output columns of each of them. All devices share this code.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/attrs.h"

namespace encore {

// Returns, for each of the merged products in order, the column at which its output columns end.
// Where the attribute is absent, there is one product, which has all `num_columns` columns.
inline std::vector<int64_t> lora_block_ends(const ir::Attrs& attrs, int64_t num_columns) {
  if (attrs.find("lora_blocks") == nullptr) return {num_columns};
  std::vector<int64_t> ends;
  for (const int64_t block : attrs.get_ints("lora_blocks"))
    ends.push_back(block + (ends.empty() ? 0 : ends.back()));
  return ends;
}

}  // namespace encore
