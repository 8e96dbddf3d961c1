// Describes how GGUF stores numbers: plain, or in blocks that share scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace encore::model::gguf {

struct BlockFormat {
  uint32_t type = 0;      // the format's number in files
  std::string_view name;  // "Q4_K"
  int64_t num_elements = 1;
  int64_t num_bytes = 0;
  // Writes the exact elements of one block to `to`. Null where Encore does not read the format.
  void (*widen)(const std::byte* block, float* to) = nullptr;
};

// Returns the format with the number `type`, or null for an unknown number.
const BlockFormat* find_format(uint32_t type);

// Writes the elements [first, first + count) of a tensor, whose blocks begin at `data`, to `to`.
void widen(const BlockFormat& format, const std::byte* data, int64_t first, int64_t count,
           float* to);

}  // namespace encore::model::gguf
