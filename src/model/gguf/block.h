// How GGUF stores numbers: plain, or in blocks that share scales.
// Source: the block structs of ggml (ggml-common.h), and PyPI gguf, quants.py, which tests compare with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace encore::model::gguf {

struct BlockFormat {
  uint32_t type = 0;      // as files number them
  std::string_view name;  // "Q4_K"
  int64_t num_elements = 1;
  int64_t num_bytes = 0;
  // Writes the elements of one block, exactly; null where Encore does not read the format.
  void (*widen)(const std::byte* block, float* to) = nullptr;
};

// Returns the format of that number, or null when no format has it.
const BlockFormat* find_format(uint32_t type);

// Elements [first, first + count) of a tensor whose blocks begin at `data`.
void widen(const BlockFormat& format, const std::byte* data, int64_t first, int64_t count,
           float* to);

}  // namespace encore::model::gguf
