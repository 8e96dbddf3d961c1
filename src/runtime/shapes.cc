#include "runtime/shapes.h"

#include <algorithm>
#include <iterator>

namespace encore::runtime {

std::vector<StepKey> uniform_shapes(const Ladder& sequences, const Limits& limits) {
  std::vector<StepKey> shapes;
  const auto& sizes = sequences.sizes();
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    for (int64_t q = limits.max_q; q >= 1; --q) {
      if (*size * q > limits.max_num_tokens) continue;
      shapes.push_back(StepKey::uniform(*size, q));
    }
  }
  return shapes;
}

std::vector<StepKey> mixed_shapes(const Ladder& sequences, const Ladder& tokens) {
  std::vector<StepKey> shapes;
  for (auto size = tokens.sizes().rbegin(); size != tokens.sizes().rend(); ++size) {
    // A mixed step has fewer sequences than tokens.
    const int64_t most = std::max<int64_t>(*size - 1, 1);
    auto last = std::lower_bound(sequences.sizes().begin(), sequences.sizes().end(), most);
    if (last != sequences.sizes().end()) ++last;
    for (auto count = std::reverse_iterator(last); count != sequences.sizes().rend(); ++count)
      shapes.push_back(StepKey::mixed(*size, *count));
  }
  return shapes;
}

std::vector<StepKey> above_shapes(const Ladder& sequences, const Ladder& tokens,
                                  const Limits& limits) {
  std::vector<StepKey> shapes;
  const auto halve_down = [](int64_t most, const Ladder& ladder, const auto& add) {
    const int64_t least = ladder.sizes().back() + 1;
    for (int64_t size = most; size >= least; size = size == least ? 0 : std::max(size / 2, least))
      add(size);
  };
  halve_down(limits.mixed_tokens(), tokens, [&](int64_t size) {
    shapes.push_back(StepKey::mixed(size, std::min(size, limits.max_batch_size)));
  });
  halve_down(limits.max_batch_size, sequences, [&](int64_t size) {
    for (int64_t q = std::min(limits.max_q, limits.max_num_tokens / size); q >= 1; --q)
      shapes.push_back(StepKey::uniform(size, q));
    shapes.push_back(StepKey::mixed(std::max(size, limits.mixed_tokens()), size));
  });
  return shapes;
}

}  // namespace encore::runtime
