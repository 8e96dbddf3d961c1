#include "passes/happens_before.h"

#include "base/error.h"

namespace encore::passes {

HappensBefore::HappensBefore(int num_nodes)
    : words_((static_cast<size_t>(num_nodes) + 63) / 64), bits_(words_ * num_nodes) {}

HappensBefore::HappensBefore(const std::vector<std::vector<int>>& after)
    : HappensBefore(static_cast<int>(after.size())) {
  for (const auto& earlier : after)
    add(earlier);
}

void HappensBefore::add(const std::vector<int>& after) {
  uint64_t* row = bits_.data() + static_cast<size_t>(num_added_) * words_;
  for (const int earlier : after) {
    ENCORE_CHECK(earlier >= 0 && earlier < num_added_, "node {} waits for node {}", num_added_,
                 earlier);
    const uint64_t* other = bits_.data() + static_cast<size_t>(earlier) * words_;
    // Ancestors of `earlier` have lower numbers: no bit beyond its own word.
    const size_t last = static_cast<size_t>(earlier) / 64;
    for (size_t word = 0; word <= last; ++word)
      row[word] |= other[word];
    row[last] |= uint64_t{1} << (static_cast<unsigned>(earlier) % 64U);
  }
  ++num_added_;
}

}  // namespace encore::passes
